// An NVML with two devices: one whose free memory grows with every query of a session, and one that
// is lost. FO_TEST_NVML describes the first one's health: "count" is the number of devices, 2
// unless it is given, and any other name is the value of a counter, which is not supported without
// it, as in "count=1 corrected0=3 pending=1".
#include <cstdlib>
#include <cstring>
#include <string>

struct FakeMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
constexpr unsigned long long kTotal = 1000;
constexpr int kNotFound = 6;
constexpr int kLost = 15;

bool g_initialised = false;
unsigned long long g_free = 0;
int g_known = 0;
int g_lost = 0;

// Sets `*value` if the counter is supported.
template <typename Value>
int counter(void* device, const std::string& name, Value* value) {
  constexpr int kNotSupported = 3;
  if (device == &g_lost) return kLost;
  const char* const given = std::getenv("FO_TEST_NVML");
  const std::string text = std::string(" ") + (given != nullptr ? given : "");
  const std::size_t at = text.find(" " + name + "=");
  if (at == std::string::npos) return kNotSupported;
  *value = static_cast<Value>(std::stoull(text.substr(at + name.size() + 2)));
  return 0;
}

extern "C" {
int nvmlInit_v2() {
  g_initialised = true;
  g_free = 600;
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (!g_initialised) return 1;
  const bool known = std::strcmp(uuid, "GPU-known") == 0;
  if (!known && std::strcmp(uuid, "GPU-lost") != 0) return kNotFound;
  *device = known ? &g_known : &g_lost;
  return 0;
}
int nvmlDeviceGetIndex(void* device, unsigned* index) {
  if (device == &g_lost) return kLost;
  *index = 5;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, FakeMemory* memory) {
  if (device == &g_lost) return kLost;
  if (device != &g_known) return 2;
  *memory = {kTotal, g_free, kTotal - g_free};
  if (g_free < kTotal) g_free += 100;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  counter(&g_known, "count", count);
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = index == 0 ? &g_known : &g_lost;
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::strncpy(text, device == &g_known ? "GPU-known" : "GPU-lost", size);
  return 0;
}
int nvmlDeviceGetName(void* device, char* text, unsigned size) {
  if (device == &g_lost) return kLost;
  std::strncpy(text, "Fake", size);
  return 0;
}
struct FakePci {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(void* device, FakePci* info) {
  if (device == &g_lost) return kLost;
  *info = {"0000:3B:00.0", 0, 0x3b, 0, 0, 0, "00000000:3B:00.0"};
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int, unsigned* value) {
  return counter(device, "temperature", value);
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int kind, unsigned long long* value) {
  return counter(device, (type == 0 ? "corrected" : "uncorrected") + std::to_string(kind), value);
}
int nvmlDeviceGetRetiredPages(void* device, int cause, unsigned* count, unsigned long long*) {
  constexpr int kInsufficientSize = 7;
  const int result = counter(device, "retired" + std::to_string(cause), count);
  return result == 0 && *count > 0 ? kInsufficientSize : result;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void* device, unsigned* value) {
  return counter(device, "retiring", value);
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* is_pending, unsigned* has_failed) {
  const int result = counter(device, "rows", corrected);
  *uncorrected = *corrected + 1;
  *is_pending = *has_failed = 0;
  counter(device, "pending", is_pending);
  counter(device, "failed", has_failed);
  return result;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* value) {
  return counter(device, "throttle", value);
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* is_active) {
  return counter(device, "link" + std::to_string(link), is_active);
}
int nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned link, int kind,
                                    unsigned long long* value) {
  return counter(device, "link" + std::to_string(link) + "." + std::to_string(kind), value);
}
const char* nvmlErrorString(int result) {
  return result == kNotFound ? "Not Found" : result == kLost ? "GPU is lost" : "Unknown Error";
}
}
