// Whether this build has sanitizers, for tests that do not work with them.
#pragma once

namespace fo::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kHasSanitizers = true;
#else
inline constexpr bool kHasSanitizers = false;
#endif
/// Why tests that use up all descriptors are skipped in such builds.
inline constexpr const char* kSanitizersOpenPipes =
    "UBSan opens a pipe to look at an object's type";

}  // namespace fo::test
