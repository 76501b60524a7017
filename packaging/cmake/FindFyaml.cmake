# Debian's libfyaml-dev: one header, a shared and a static library. FYAML_USE_STATIC_LIBS chooses
# the static one.
find_path(FYAML_INCLUDE_DIR libfyaml.h)
if(FYAML_USE_STATIC_LIBS)
  find_library(FYAML_LIBRARY NAMES libfyaml.a)
else()
  find_library(FYAML_LIBRARY fyaml)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Fyaml DEFAULT_MSG FYAML_LIBRARY FYAML_INCLUDE_DIR)
if(Fyaml_FOUND AND NOT TARGET fyaml::fyaml)
  add_library(fyaml::fyaml UNKNOWN IMPORTED)
  set_target_properties(fyaml::fyaml PROPERTIES
    IMPORTED_LOCATION ${FYAML_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${FYAML_INCLUDE_DIR})
endif()
