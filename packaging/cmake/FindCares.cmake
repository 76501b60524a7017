# Debian's libc-ares-dev: headers, a shared and a static library, no CMake file.
# CARES_USE_STATIC_LIBS selects the static one.
find_path(CARES_INCLUDE_DIR ares.h)
if(CARES_USE_STATIC_LIBS)
  find_library(CARES_LIBRARY NAMES libcares.a)
else()
  find_library(CARES_LIBRARY cares)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cares DEFAULT_MSG CARES_LIBRARY CARES_INCLUDE_DIR)
if(Cares_FOUND AND NOT TARGET cares::cares)
  add_library(cares::cares UNKNOWN IMPORTED)
  set_target_properties(cares::cares PROPERTIES
    IMPORTED_LOCATION ${CARES_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CARES_INCLUDE_DIR})
endif()
