#include "gms/server/admission.h"

#include <gtest/gtest.h>

namespace fo::gms {
namespace {

constexpr uid_t kOurs = 1000;
constexpr uid_t kOther = 2000;

os::PeerCredentials peer(pid_t pid, uid_t uid, gid_t gid = 7) { return {pid, uid, gid}; }

bool lets_in(Admission& admission, const os::PeerCredentials& who,
             const std::vector<gid_t>& groups = {}) {
  return !admission.admit(who, groups);
}

TEST(Admission, OnlyOurUserAndRootUnlessARuleSaysOtherwise) {
  Admission admission({}, kOurs, 100);
  EXPECT_TRUE(lets_in(admission, peer(1, kOurs)));
  EXPECT_TRUE(lets_in(admission, peer(2, 0)));
  EXPECT_EQ(admission.admit(peer(3, kOther, kOurs), {kOurs, 0}), "it is not allowed");
  EXPECT_FALSE(admission.wants_groups());
}

TEST(Admission, UsersAndGroupsThatARuleNames) {
  Admission admission({{kOther}, {44}}, kOurs, 100);
  EXPECT_TRUE(lets_in(admission, peer(1, kOther)));
  EXPECT_TRUE(lets_in(admission, peer(2, 3000, 44)));
  EXPECT_TRUE(lets_in(admission, peer(3, 3000), {5, 44}));
  EXPECT_FALSE(lets_in(admission, peer(4, 3000, 45), {5, 46}));
  EXPECT_FALSE(lets_in(admission, peer(5, 44, 45)));  // a user of that number
  EXPECT_TRUE(admission.wants_groups());
}

TEST(Admission, NoProcessTakesMoreThanAQuarter) {
  Admission admission({}, kOurs, 8);
  EXPECT_TRUE(lets_in(admission, peer(1, kOurs)));
  EXPECT_TRUE(lets_in(admission, peer(1, kOurs)));
  EXPECT_EQ(admission.admit(peer(1, kOurs), {}), "its process has 2 connections");
  EXPECT_TRUE(lets_in(admission, peer(2, kOurs)));
  admission.release(peer(1, kOurs));
  EXPECT_TRUE(lets_in(admission, peer(1, kOurs)));
}

TEST(Admission, OtherUsersTakeNoMoreThanHalfEach) {
  Admission admission({{kOther, 3000}, {}}, kOurs, 8);
  for (pid_t pid = 1; pid <= 4; ++pid) EXPECT_TRUE(lets_in(admission, peer(pid, kOther)));
  EXPECT_EQ(admission.admit(peer(5, kOther), {}), "its user has 4 connections");
  EXPECT_TRUE(lets_in(admission, peer(6, 3000)));
  for (pid_t pid = 7; pid <= 9; ++pid) EXPECT_TRUE(lets_in(admission, peer(pid, kOurs)));
  EXPECT_TRUE(admission.full());
  EXPECT_EQ(admission.admit(peer(10, 0), {}), "the server is full");
  admission.release(peer(6, 3000));
  EXPECT_TRUE(lets_in(admission, peer(10, 0)));
}

TEST(Admission, EverybodyHasAPlaceWhereThereAreFew) {
  Admission admission({{kOther}, {}}, kOurs, 1);
  EXPECT_TRUE(lets_in(admission, peer(1, kOther)));
  EXPECT_FALSE(lets_in(admission, peer(2, kOurs)));
  admission.release(peer(1, kOther));
  EXPECT_TRUE(lets_in(admission, peer(2, kOurs)));
}

}  // namespace
}  // namespace fo::gms
