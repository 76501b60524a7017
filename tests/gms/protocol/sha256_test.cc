#include "gms/protocol/sha256.h"

#include <gtest/gtest.h>

namespace fo::gms {
namespace {

TEST(Sha256, IsThatOfFips180) {
  const std::string_view text = "abc";
  Sha256 hash;
  hash.add(std::as_bytes(std::span(text.substr(0, 1))));
  hash.add(std::as_bytes(std::span(text.substr(1))));
  EXPECT_EQ(hash.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256().finish(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace fo::gms
