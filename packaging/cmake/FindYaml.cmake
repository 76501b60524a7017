# Debian's libyaml-dev: one header, a shared and a static library, no CMake file.
# YAML_USE_STATIC_LIBS selects the static one.
find_path(YAML_INCLUDE_DIR yaml.h)
if(YAML_USE_STATIC_LIBS)
  find_library(YAML_LIBRARY NAMES libyaml.a)
else()
  find_library(YAML_LIBRARY yaml)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Yaml DEFAULT_MSG YAML_LIBRARY YAML_INCLUDE_DIR)
if(Yaml_FOUND AND NOT TARGET yaml::yaml)
  add_library(yaml::yaml UNKNOWN IMPORTED)
  set_target_properties(yaml::yaml PROPERTIES
    IMPORTED_LOCATION ${YAML_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${YAML_INCLUDE_DIR})
endif()
