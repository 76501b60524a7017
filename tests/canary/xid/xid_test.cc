#include "canary/xid/xid.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "canary/xid/xid_report.h"

namespace fo::canary {
namespace {

using testing::HasSubstr;

Xid parsed(const std::string& message) {
  const auto xid = parse_xid(message);
  if (!xid) ADD_FAILURE() << "not an Xid: " << message;
  return xid.value_or(Xid{});
}

XidClass class_of_text(std::uint64_t code, const std::string& text) {
  return class_of(parsed("NVRM: Xid (PCI:0000:3b:00): " + std::to_string(code) + ", " + text));
}

TEST(Xid, FormsOfBusIds) {
  for (const char* const text : {"0000:3b:00.0", "0000:3B:00", "00000000:3B:00.0"}) {
    EXPECT_EQ(canonical_bus_id(text), "0000:3b:00.0") << text;
  }
  EXPECT_EQ(canonical_bus_id("00010000:3b:00.1"), "10000:3b:00.1");
  for (const char* const text : {"", "3b:00.0", "000:3b:00.0", "000000000:3b:00.0", "0000:3b:00.8",
                                 "0000:3b:00.", "0000:3b:0g.0", "0000:3b:00.00", "GPU-1"}) {
    EXPECT_EQ(canonical_bus_id(text), "") << text;
  }
}

TEST(Xid, FormOfTheFirstDrivers) {
  const Xid xid = parsed("NVRM: Xid (0000:03:00): 14, Channel 00000001");
  EXPECT_EQ(xid.bus_id, "0000:03:00.0");
  EXPECT_EQ(xid.code, 14u);
  EXPECT_EQ(xid.text, "Channel 00000001");
  EXPECT_FALSE(xid.pid);
}

TEST(Xid, FormWithoutAProcess) {
  const Xid xid = parsed("NVRM: Xid (PCI:0000:3B:00): 79, GPU has fallen off the bus.");
  EXPECT_EQ(xid.bus_id, "0000:3b:00.0");
  EXPECT_EQ(xid.text, "GPU has fallen off the bus.");
}

TEST(Xid, FormWithAProcess) {
  Xid xid = parsed("NVRM: Xid (PCI:0004:01:00): 119, pid=430, name=nv_queue, Timeout!");
  EXPECT_EQ(xid.pid, 430u);
  EXPECT_EQ(xid.process, "nv_queue");
  EXPECT_EQ(xid.text, "Timeout!");
  xid = parsed("NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus.");
  EXPECT_EQ(xid.pid, 1122u);
  EXPECT_EQ(xid.process, "");
  xid = parsed("NVRM: Xid (PCI:0000:05:00): 48, pid='<unknown>', name=<unknown>, DBE");
  EXPECT_FALSE(xid.pid);
  EXPECT_EQ(xid.process, "");
  EXPECT_EQ(xid.text, "DBE");
}

TEST(Xid, FormOfSlices) {
  Xid xid = parsed("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE");
  EXPECT_EQ(xid.gpu_instance, 5u);
  EXPECT_FALSE(xid.compute_instance);
  xid = parsed("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:02): 31, pid=7, name=a, MMU");
  EXPECT_EQ(xid.gpu_instance, 5u);
  EXPECT_EQ(xid.compute_instance, 2u);
  EXPECT_EQ(xid.code, 31u);
}

TEST(Xid, AddressesOfOtherTools) {
  EXPECT_EQ(parsed("NVRM: Xid (PCI:0000:00:1E.0): 48, a").bus_id, "0000:00:1e.0");
  EXPECT_EQ(parsed("NVRM: Xid (PCI:00000000:17:00.0): 48, a").bus_id, "0000:17:00.0");
}

TEST(Xid, OtherMessagesAreNone) {
  for (const char* const text :
       {"", "NVRM:", "NVRM: Xid", "NVRM: Xid (", "NVRM: Xid (PCI:", "NVRM: Xid (PCI:0000:3b:00",
        "NVRM: Xid (PCI:0000:3b:00)", "NVRM: Xid (PCI:0000:3b:00):", "NVRM: Xid (PCI:0000:3b:00): ",
        "NVRM: Xid (PCI:0000:3b:00): abc, pid=1", "NVRM: Xid (PCI:000:3b:00): 79, a",
        "NVRM: Xid (PCI:0000:3b:00.8): 79, a", "NVRM: Xid (PCI:0000:3g:00): 79, a",
        "NVRM: Xid (PCI:0000:3b:00): 99999999999999999999, a",
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        " NVRM: Xid (PCI:0000:3b:00): 79, a"}) {
    EXPECT_FALSE(parse_xid(text)) << text;
  }
}

TEST(Xid, Classes) {
  for (const unsigned code : {48u, 64u, 74u, 79u, 95u, 119u, 120u, 140u, 143u}) {
    EXPECT_EQ(class_of_text(code, "a"), XidClass::kFatal) << code;
  }
  for (const unsigned code : {13u, 31u, 94u}) {
    EXPECT_EQ(class_of_text(code, "a"), XidClass::kApplication) << code;
  }
  for (const unsigned code : {43u, 63u}) {
    EXPECT_EQ(class_of_text(code, "a"), XidClass::kIgnored) << code;
  }
  for (const unsigned code : {14u, 45u, 92u, 109u, 151u, 4711u}) {
    EXPECT_EQ(class_of_text(code, "fatal"), XidClass::kReported) << code;
  }
}

TEST(Xid, LinkErrorsAreFatalIfTheyAreMarkedSo) {
  for (unsigned code = 144; code <= 150; ++code) {
    const std::string link = " XC0 i0 Link 01 (0x021425c6 0x00000000)";
    EXPECT_EQ(class_of_text(code, "NETIR_LINK_EVT  Fatal  " + link), XidClass::kFatal);
    EXPECT_EQ(class_of_text(code, "SAW_MVB FATAL" + link), XidClass::kFatal);
    EXPECT_EQ(class_of_text(code, "RLW_REMAP Nonfatal" + link), XidClass::kReported);
    EXPECT_EQ(class_of_text(code, "NON_FATAL link event"), XidClass::kReported);
    EXPECT_EQ(class_of_text(code, "a non-fatal event"), XidClass::kReported);
    EXPECT_EQ(class_of_text(code, ""), XidClass::kReported);
  }
}

TEST(Xid, RecoveryActionsAreAsTheTextSays) {
  const std::string changed = "GPU recovery action changed from ";
  for (const char* const action :
       {"GPU Reset Required", "Node Reboot Required", "OS Reboot", "Drain and Reset", "PF FLR"}) {
    const Xid xid = parsed("NVRM: Xid (PCI:0008:01:00): 154, " + changed + "0x0 (None) to 0x1 (" +
                           action + ")");
    EXPECT_EQ(class_of(xid), XidClass::kFatal);
    EXPECT_THAT(advice_on(xid), HasSubstr(action));
  }
  EXPECT_EQ(class_of_text(154, changed + "0x1 (GPU Reset Required) to 0x0 (None)"),
            XidClass::kReported);
  EXPECT_EQ(class_of_text(154, "something new"), XidClass::kFatal);
  EXPECT_EQ(class_of_text(154, ") to 0x1 ("), XidClass::kFatal);
}

TEST(Xid, EveryCodeHasAdvice) {
  for (std::uint64_t code = 0; code < 200; ++code) {
    EXPECT_THAT(advice_on({.bus_id = "0000:3b:00.0", .code = code}), testing::EndsWith("."))
        << code;
  }
}

TEST(XidReader, AGpuThatIsMissingAtTheStart) {
  XidReader reader;
  EXPECT_FALSE(reader.read("NVRM: The NVIDIA GPU 0000:b3:00.0"));
  EXPECT_FALSE(reader.read("NVRM: (PCI ID: 10de:26b5) installed in this system has"));
  const auto xid = reader.read("NVRM: fallen off the bus and is not responding to commands.");
  ASSERT_TRUE(xid);
  EXPECT_EQ(xid->bus_id, "0000:b3:00.0");
  EXPECT_EQ(xid->code, 79u);
  EXPECT_FALSE(reader.read("NVRM: fallen off the bus and is not responding to commands."));
}

TEST(XidReader, OtherLinesBetweenEndTheIntroduction) {
  XidReader reader;
  EXPECT_FALSE(reader.read("NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5)"));
  EXPECT_FALSE(reader.read("NVRM: installed in this system is not supported"));
  EXPECT_FALSE(reader.read("NVRM: fallen off the bus and is not responding to commands."));
}

TEST(XidReport, HasWhatIsKnown) {
  const Xid xid = parsed("NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=a\xff, MMU Fault");
  const auto all = nlohmann::json::parse(
      to_json(xid, {.uptime = std::chrono::milliseconds(1500), .time = "Feb 14 05:03:41"}));
  EXPECT_EQ(all["class"], "application");
  EXPECT_EQ(all["pid"], 7);
  EXPECT_EQ(all["uptime"], 1.5);
  EXPECT_EQ(all["time"], "Feb 14 05:03:41");
  const auto least = nlohmann::json::parse(to_json({.bus_id = "0000:01:00.0", .code = 4711}, {}));
  EXPECT_EQ(least.size(), 5u);
}

}  // namespace
}  // namespace fo::canary
