// The parts of a fo-shadow, for code that needs several of them.
#pragma once

#include <memory>

#include "engine/gms_watch.h"
#include "engine/monitor.h"
#include "engine/shadow/course.h"
#include "engine/shadow/engine_process.h"
#include "engine/shadow/life_record.h"
#include "engine/shadow/lock_holder.h"
#include "engine/shadow/registration.h"
#include "engine/status_server.h"

namespace fo::engine {

struct Parts {
  Course& course;
  /// nullptr without failover.
  std::unique_ptr<LockHolder>& lock;
  EngineProcess& engine;
  Registration& registration;
  Monitor& monitor;
  GmsWatch& gms;
  LifeRecord& life;
  /// nullptr once the end has closed it.
  std::unique_ptr<StatusServer>& server;
};

}  // namespace fo::engine
