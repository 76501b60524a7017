// A server, and a driver in this process for what it lends.
#pragma once

#include <memory>
#include <string>

#include "cuda/device.h"
#include "gms/gms_process.h"
#include "gms/memory_manager.h"

namespace fo::gms {

class ServerWithDevice : public OneServer {
 protected:
  void SetUp() override {
    OneServer::SetUp();
    driver_ = cuda::Driver::open("sim");
    device_ = cuda::device_info(*driver_, base::DeviceOrdinal(0));
  }

  [[nodiscard]] MemoryManager manager() const { return manager(socket_); }
  [[nodiscard]] MemoryManager manager(const std::string& socket) const {
    return {driver_, device_, socket};
  }

  // Device memory is host memory here.
  static char* at(const MappedAllocation& one) { return reinterpret_cast<char*>(one.address); }

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
};

}  // namespace fo::gms
