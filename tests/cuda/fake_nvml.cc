// An NVML that knows one device.
#include <cstring>

extern "C" {
struct FakeMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
int g_initialised = 0;
int g_device = 0;

int nvmlInit_v2() {
  g_initialised = 1;
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (g_initialised == 0) return 1;
  if (std::strcmp(uuid, "GPU-known") != 0) return 6;
  *device = &g_device;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, FakeMemory* memory) {
  if (device != &g_device) return 2;
  *memory = {1000, 600, 400};
  return 0;
}
const char* nvmlErrorString(int result) { return result == 6 ? "Not Found" : "Unknown Error"; }
}
