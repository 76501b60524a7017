# CPack runs this on the packages' trees before it packs them: files that Debian has in other places
# than cmake --install, and files that only its packages have.

set(tree ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
file(RENAME ${tree}/tools/usr/share/zsh/site-functions ${tree}/tools/usr/share/zsh/vendor-completions)

foreach(package tools=fo-tools simulated=fo-simcuda)
  string(REPLACE "=" ";" names ${package})
  list(GET names 0 group)
  list(GET names 1 package)
  set(root ${tree}/${group}/usr/share)
  file(MAKE_DIRECTORY ${root}/doc/${package})
  foreach(file copyright changelog)
    file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/${file} ${root}/doc/${package}/${file})
  endforeach()
  set(overrides ${CMAKE_CURRENT_LIST_DIR}/${package}.lintian-overrides)
  if(EXISTS ${overrides})
    file(MAKE_DIRECTORY ${root}/lintian/overrides)
    file(COPY_FILE ${overrides} ${root}/lintian/overrides/${package})
  endif()
  file(GLOB pages ${root}/man/man?/*)
  execute_process(COMMAND gzip -9nf ${root}/doc/${package}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# CPack sets only the dates of the archives themselves.
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(COMMAND find ${tree} -exec touch --no-dereference --date=@$ENV{SOURCE_DATE_EPOCH} {} +
    COMMAND_ERROR_IS_FATAL ANY)
endif()
