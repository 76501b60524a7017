// A server, and a driver in this process for its memory.
#pragma once

#include <memory>
#include <string>

#include "cuda/device.h"
#include "cuda/driver_calls.h"
#include "gms/client/memory_manager.h"
#include "gms/gms_process.h"

namespace fo::gms {

class ServerWithDevice : public OneServer {
 protected:
  void SetUp() override {
    OneServer::SetUp();
    if (IsSkipped()) return;
    set("GMS_SIM_CONTEXT_SIZE", "0");  // all of the device is for the test
    driver_ = cuda::Driver::open(test::driver());
    device_ = cuda::device_info(*driver_, base::DeviceOrdinal(0));
    context_ = cuda::PrimaryContext::retain(driver_, device_.ordinal);
  }

  [[nodiscard]] MemoryManager manager() const { return manager(socket_); }
  [[nodiscard]] MemoryManager manager(const std::string& socket) const {
    return {driver_, device_, socket};
  }

  void fill(const MappedAllocation& one, char letter) const {
    cuda::fill(*driver_, one.address, static_cast<std::byte>(letter), one.allocation.aligned_size);
    cuda::synchronize(*driver_);
  }
  [[nodiscard]] char byte_at(const MappedAllocation& one, base::ByteCount offset = 0) const {
    return cuda::bytes_at(*driver_, one.address + offset, 1).front();
  }
  [[nodiscard]] std::string bytes_of(const MappedAllocation& one) const {
    return cuda::bytes_at(*driver_, one.address, one.allocation.aligned_size);
  }

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  // For the copies.
  cuda::PrimaryContext context_;
};

}  // namespace fo::gms
