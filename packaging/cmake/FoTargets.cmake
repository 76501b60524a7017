# Defines this project's targets: one static library for each folder of lib, one program for each tool.

add_library(fo_flags INTERFACE)
target_compile_features(fo_flags INTERFACE cxx_std_20)
target_compile_options(fo_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  -Wnon-virtual-dtor -fno-strict-aliasing
  # g++ 12 falsely reports overlaps in std::string's operator+, and that the delete of asio's coroutine
  # frames does not match their new.
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-mismatched-new-delete>"
  # Files that are compiled as one are included, so g++ takes their anonymous namespaces for those of
  # headers.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  $<$<BOOL:${FO_WERROR}>:-Werror>
  # g++ starts to collect garbage at 1 GiB instead of 128 MiB, which saves a twentieth of the time.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>
  # --gc-sections drops whole sections, so that static tools in engine images are small.
  $<$<CONFIG:Release>:-fstack-protector-strong -ffunction-sections -fdata-sections>
  $<$<AND:$<CONFIG:Release>,$<NOT:$<BOOL:$<TARGET_PROPERTY:FO_QUICK>>>>:-D_FORTIFY_SOURCE=2>)
target_link_options(fo_flags INTERFACE $<$<CONFIG:Release>:-Wl,-z,relro,-z,now,--gc-sections>)
if(FO_SANITIZE)
  target_compile_options(fo_flags INTERFACE -fsanitize=${FO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(fo_flags INTERFACE -fsanitize=${FO_SANITIZE})
endif()
if(FO_COVERAGE)
  target_compile_options(fo_flags INTERFACE --coverage -fprofile-update=atomic)
  # Counts processes that end by _exit, too.
  target_link_options(fo_flags INTERFACE --coverage -Wl,--wrap=_exit,--undefined=__wrap__exit)
  add_library(fo_coverage STATIC ${CMAKE_SOURCE_DIR}/tests/support/counted_exit.cc)
  set_target_properties(fo_coverage PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(fo_flags INTERFACE fo_coverage)
endif()

# fo_headers(TARGET LIBRARY): puts the headers of lib/LIBRARY, and of no other library, on the include
# path of TARGET and of targets that link it: headers/LIBRARY contains only a link to lib/LIBRARY. A
# library sees the libraries that it links itself (FO_LIBRARIES), not those behind them, so the compiler
# refuses other includes; programs see all of them.
function(fo_headers target library)
  set(folder ${CMAKE_BINARY_DIR}/headers/${library})
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/lib/${library} ${folder}/${library} SYMBOLIC)
  set(libraries "$<TARGET_PROPERTY:FO_LIBRARIES>")
  target_include_directories(${target} PUBLIC
    "$<$<OR:$<NOT:$<BOOL:${libraries}>>,$<IN_LIST:${library},${libraries}>>:${folder}>")
endfunction()

# fo_library(NAME [COLD] SOURCES file... LINK target...): builds the static library fo_NAME from
# lib/NAME. The release preset compiles up to 40 files as one (CMAKE_UNITY_BUILD), in a third of the time.
# The code of COLD libraries runs seldom, so they are compiled with -O1, in three quarters of the time.
function(fo_library name)
  cmake_parse_arguments(arg "COLD" "" "SOURCES;LINK" ${ARGN})
  add_library(fo_${name} STATIC ${arg_SOURCES})
  list(TRANSFORM arg_LINK REPLACE "^fo_" "" OUTPUT_VARIABLE libraries)
  set_property(TARGET fo_${name} PROPERTY FO_LIBRARIES ${name} ${libraries})
  set_property(TARGET fo_${name} PROPERTY UNITY_BUILD_BATCH_SIZE 40)
  fo_headers(fo_${name} ${name})
  target_link_libraries(fo_${name} PUBLIC fo_flags ${arg_LINK})
  if(arg_COLD)
    target_compile_options(fo_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# fo_tool(NAME [STATIC] [PRIVATE_HELPER] SOURCES file... LINK target...): builds the program NAME,
# whose own code only reads options and is compiled as that of a COLD library.
# STATIC tools go into engine images: one file that needs no libc (release preset). The component
# "static" has these, their helpers, and the pages of all tools, because pages refer to each other;
# "dynamic" has the rest. Completions are installed with their tool.
function(fo_tool name)
  cmake_parse_arguments(arg "STATIC;PRIVATE_HELPER" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_compile_definitions(${name} PRIVATE FO_VERSION="${PROJECT_VERSION}")
  target_link_libraries(${name} PRIVATE fo_flags ${arg_LINK})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(FO_STATIC_TOOLS AND arg_STATIC)
    # lib/os/refused_calls.cc has the replacements.
    target_link_options(${name} PRIVATE -static
      -Wl,--wrap=dlopen,--wrap=getaddrinfo,--wrap=getnameinfo
      -Wl,--wrap=gethostbyname,--wrap=getservbyname,--wrap=getservbyport_r)
  elseif(FO_STATIC_TOOLS)
    # Without --gc-sections libstdc++ would need a newer libc than glibc 2.35.
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  endif()
  set(component dynamic)
  if(arg_STATIC OR arg_PRIVATE_HELPER)
    set(component static)
  endif()
  foreach(section 1 8)
    set(page ${CMAKE_SOURCE_DIR}/man/${name}.${section})
    if(EXISTS ${page})
      install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT static)
    endif()
  endforeach()
  if(arg_PRIVATE_HELPER)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/libexec/fo)
    # Tools expect it there: lib/os/process/sibling.cc.
    install(TARGETS ${name} DESTINATION libexec/fo COMPONENT ${component})
    return()
  endif()
  install(TARGETS ${name} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
  fo_completions(${name} ${component})
endfunction()

# fo_completions(TOOL COMPONENT): installs the completions that TOOL prints for each shell.
add_custom_target(completions ALL)
function(fo_completions tool component)
  set(folder ${CMAKE_BINARY_DIR}/completions)
  add_custom_command(OUTPUT ${folder}/${tool} ${folder}/_${tool} ${folder}/${tool}.fish
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND ${tool} completion bash > ${folder}/${tool}
    COMMAND ${tool} completion zsh > ${folder}/_${tool}
    COMMAND ${tool} completion fish > ${folder}/${tool}.fish
    DEPENDS ${tool} VERBATIM)
  add_custom_target(${tool}-completions
    DEPENDS ${folder}/${tool} ${folder}/_${tool} ${folder}/${tool}.fish)
  add_dependencies(completions ${tool}-completions)
  set(shared ${CMAKE_INSTALL_DATADIR})
  install(FILES ${folder}/${tool} COMPONENT ${component}
    DESTINATION ${shared}/bash-completion/completions)
  install(FILES ${folder}/_${tool} COMPONENT ${component} DESTINATION ${shared}/zsh/site-functions)
  install(FILES ${folder}/${tool}.fish COMPONENT ${component}
    DESTINATION ${shared}/fish/vendor_completions.d)
endfunction()

# fo_quirks(LIBRARY TESTS filter... [EXCEPT filter...] [EXCEPT_QUIRK filter...]...): runs tests of
# LIBRARY_test once more for each way in which a driver may differ from the simulated one's default,
# selected by GMS_SIM_QUIRKS and GMS_SIM_FREE_DELAY. EXCEPT excludes tests from all of them,
# EXCEPT_QUIRK, such as EXCEPT_free-delay, from one. Each is one entry of ctest: Quirks.LIBRARY.QUIRK.
function(fo_quirks library)
  set(quirks need-context no-reexport late-copy-errors free-delay)
  list(TRANSFORM quirks PREPEND EXCEPT_ OUTPUT_VARIABLE exceptions)
  cmake_parse_arguments(arg "" "" "TESTS;EXCEPT;${exceptions}" ${ARGN})
  list(JOIN arg_TESTS ":" tests)
  foreach(quirk ${quirks})
    list(JOIN arg_EXCEPT ":" except)
    list(JOIN arg_EXCEPT_${quirk} ":" except_here)
    set(entry Quirks.${library}.${quirk})
    add_test(NAME ${entry} COMMAND ${CMAKE_SOURCE_DIR}/tests/run-each $<TARGET_FILE:${library}_test>
      "${tests}-${except}:${except_here}")
    set(variable GMS_SIM_QUIRKS=${quirk})
    if(quirk STREQUAL free-delay)
      set(variable GMS_SIM_FREE_DELAY=100ms)
    endif()
    set_tests_properties(${entry} PROPERTIES
      TIMEOUT 600 LABELS ${library} ENVIRONMENT ${variable})
  endforeach()
endfunction()

# LLVM's linker, of the version of the fuzzers' compiler, takes a quarter of the time of GNU's.
find_program(FO_LLD ld.lld HINTS /usr/lib/llvm-19/bin)

# fo_test_options(TARGET): compiles the target's own files as those of tests: without -O2, in half the
# time. A program goes to tests/ in the build folder. In the release preset it starts in half the time,
# because nothing is left to relocate and few symbols are to be found: ctest starts a program for each
# test.
function(fo_test_options target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE
    FO_BUILD_DIR="${CMAKE_BINARY_DIR}" FO_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
  if(FO_LLD)
    cmake_path(GET FO_LLD PARENT_PATH folder)
    target_link_options(${target} PRIVATE -B${folder} -fuse-ld=lld)
  endif()
  target_link_options(${target} PRIVATE
    $<$<CONFIG:Release>:-no-pie;-static-libstdc++;-static-libgcc>)
  set_target_properties(${target} PROPERTIES
    FO_QUICK ON RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

# fo_tests(LIBRARY SOURCES file... LINK target... [ON_GPU filter... [UNMARKED]]): builds the GoogleTest
# program LIBRARY_test for ctest, of which up to 40 files are compiled as one. ON_GPU selects tests that
# can use a GPU instead of the simulated device (tests/support/driver.h): ctest has them a second time,
# with the label gpu. UNMARKED, for libraries that treat a simulated device specially, adds them a third
# time, on a simulated driver that does not identify itself.
function(fo_tests library)
  cmake_parse_arguments(arg "UNMARKED" "" "SOURCES;LINK;ON_GPU" ${ARGN})
  add_executable(${library}_test ${arg_SOURCES})
  set_property(TARGET ${library}_test PROPERTY UNITY_BUILD_BATCH_SIZE 40)
  fo_test_options(${library}_test)
  target_include_directories(${library}_test PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${library}_test PRIVATE fo_flags ${arg_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${library}_test DISCOVERY_TIMEOUT 30 PROPERTIES TIMEOUT 120 LABELS ${library})
  list(JOIN arg_ON_GPU ":" filter)
  if(arg_ON_GPU)
    # They measure the GPU's used memory, so only one of them may run at a time.
    gtest_discover_tests(${library}_test TEST_FILTER "${filter}" TEST_PREFIX gpu. DISCOVERY_TIMEOUT 30
      PROPERTIES TIMEOUT 300 LABELS gpu RESOURCE_LOCK gpu ENVIRONMENT FO_TEST_DRIVER=cuda)
  endif()
  if(arg_UNMARKED)
    add_dependencies(${library}_test unmarked_driver)
    gtest_discover_tests(${library}_test TEST_FILTER "${filter}" TEST_PREFIX unmarked.
      DISCOVERY_TIMEOUT 30 PROPERTIES TIMEOUT 120 LABELS ${library}
      ENVIRONMENT FO_TEST_DRIVER=${CMAKE_BINARY_DIR}/tests/unmarked/libcuda.so.1)
  endif()
endfunction()
