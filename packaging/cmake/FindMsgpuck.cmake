# Debian's libmsgpuck-dev: one header and a static library, no CMake or pkg-config file.
find_path(MSGPUCK_INCLUDE_DIR msgpuck.h)
find_library(MSGPUCK_LIBRARY msgpuck)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Msgpuck DEFAULT_MSG MSGPUCK_LIBRARY MSGPUCK_INCLUDE_DIR)
if(Msgpuck_FOUND AND NOT TARGET msgpuck::msgpuck)
  add_library(msgpuck::msgpuck UNKNOWN IMPORTED)
  set_target_properties(msgpuck::msgpuck PROPERTIES
    IMPORTED_LOCATION ${MSGPUCK_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${MSGPUCK_INCLUDE_DIR})
endif()
