// An NVML with two devices: one whose free memory shrinks with every query of a session, and one
// that is lost.
#include <cstring>

extern "C" {
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
const char* nvmlErrorString(int result) {
  return result == kNotFound ? "Not Found" : result == kLost ? "GPU is lost" : "Unknown Error";
}
}
