#include "weights/file/weight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "support.h"
#include "support/must_run.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::ExitStatus;
using base::kMiB;
using testing::HasSubstr;

// A buffer for direct reads.
class Aligned {
 public:
  explicit Aligned(std::size_t size)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, size))), size_(size) {
    std::memset(memory_.get(), 0xee, size);
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return {memory_.get(), size_}; }
  [[nodiscard]] std::string text(ByteCount size) const {
    return {reinterpret_cast<const char*>(memory_.get()), size};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_;
};

class WeightFileTest : public testing::Test {
 protected:
  std::string write(std::size_t size) {
    content_ = make_part("", "", "", size, 5).bytes;
    return dir_.write("file", content_);
  }
  TempDir dir_;
  std::string content_;
};

TEST_F(WeightFileTest, SpreadsOneReadOverItsPieces) {
  const WeightFile file(write(100'000));
  std::string to(200'000, '?');
  std::vector<iovec> pieces;
  std::string wanted = to;
  for (std::size_t i = 0; i < kMaxPieces; ++i) {
    const std::size_t size = i % 7 == 0 ? 0 : 90;
    pieces.push_back({to.data() + i * 100, size});
  }
  std::size_t from = 17;
  for (const iovec& piece : pieces) {
    const auto at = static_cast<std::size_t>(static_cast<char*>(piece.iov_base) - to.data());
    wanted.replace(at, piece.iov_len, content_.substr(from, piece.iov_len));
    from += piece.iov_len;
  }
  file.read(pieces, 17);
  EXPECT_TRUE(to == wanted);
}

TEST_F(WeightFileTest, ReadsDirectlyUpToItsLastByte) {
  const std::size_t size = 3 * kMiB + 1234;
  const std::string path = write(size);
  for (const bool cold : {true, false}) {
    const WeightFile file(path);
    if (cold) forget(path);
    for (const ByteCount offset : {ByteCount{0}, ByteCount{4096}, kMiB, 3 * kMiB}) {
      const Aligned memory(kMiB);
      file.read_direct(memory.bytes(), offset);
      const ByteCount there = std::min<ByteCount>(kMiB, size - offset);
      EXPECT_TRUE(memory.text(there) == content_.substr(offset, there)) << offset;
    }
  }
}

TEST_F(WeightFileTest, ThatWasCutOffIsSaidToBe) {
  const std::string path = write(2 * kMiB);
  const WeightFile file(path);
  std::filesystem::resize_file(path, kMiB + 5);
  const Aligned memory(kMiB);
  for (const Failure& failure : {failure_of([&] { file.read_direct(memory.bytes(), kMiB); }),
                                 failure_of([&] { file.read(memory.bytes(), kMiB); })}) {
    EXPECT_EQ(failure.status, ExitStatus::kBadData);
    EXPECT_THAT(failure.message, HasSubstr("it is truncated at byte 1048581"));
  }
  EXPECT_EQ(status_of([&] { file.check_unchanged(); }), ExitStatus::kBadData);
}

TEST_F(WeightFileTest, IsColdUntilItWasRead) {
  const std::string path = write(4 * kMiB);
  forget(path);
  const WeightFile file(path);
  if (!file.is_cold(0, 4 * kMiB)) FO_SKIP("direct-reads", "this file system knows no direct reads");
  EXPECT_FALSE(file.is_cold(0, 1000)) << "few bytes";
  std::string memory(4 * kMiB, '\0');
  file.read(std::as_writable_bytes(std::span(memory)), 0);
  EXPECT_FALSE(file.is_cold(0, 4 * kMiB));
}

TEST(WeightFile, InMemoryIsNeverCold) {
  const base::UniqueFd memory(::memfd_create("weights", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), 2 * static_cast<off_t>(kMiB)), 0);
  const WeightFile file("/proc/self/fd/" + std::to_string(memory.get()));
  EXPECT_FALSE(file.is_cold(0, 2 * kMiB));
  const Aligned to(kMiB);
  file.read_direct(to.bytes(), kMiB);
  EXPECT_EQ(to.text(kMiB), std::string(kMiB, '\0'));
}

}  // namespace
}  // namespace fo::weights
