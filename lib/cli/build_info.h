// The version, source and build type of a program, for --version. packaging/cmake/BuildInfo.cmake
// writes the definition.
#pragma once

#include <string_view>

namespace fo::cli {

/// "c2dfd53a0b1c, GNU 12.2.0, Release": the commit (with "-dirty" if files were changed; omitted if
/// the sources are not a Git repository), the compiler, and the kind of build with its sanitizers.
std::string_view build_info();

}  // namespace fo::cli
