// Boost.Asio, compiled once for every library that uses it (BOOST_ASIO_SEPARATE_COMPILATION),
// without its resolver: getaddrinfo(3) loads libraries at run time, which ties a static program to
// one libc. Synchronous use of the resolver does not link, and asynchronous use fails with
// EAI_FAIL.
#define getaddrinfo refused_getaddrinfo
#define getnameinfo refused_getnameinfo
#include <boost/asio/impl/src.hpp>

extern "C" {

int refused_getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) { return EAI_FAIL; }

int refused_getnameinfo(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int) {
  return EAI_FAIL;
}

}  // extern "C"
