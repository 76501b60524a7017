// Replaces libc calls that load libraries at run time, which would tie a static program to one
// libc; c-ares and OpenSSL contain such calls. Every one fails. The linker redirects the calls of
// static tools to these (--wrap, fo_tool).
#include <netdb.h>

#include <cerrno>

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
extern "C" {

int __wrap_getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**);
int __wrap_getnameinfo(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
hostent* __wrap_gethostbyname(const char*);
servent* __wrap_getservbyname(const char*, const char*);
int __wrap_getservbyport_r(int, const char*, servent*, char*, size_t, servent**);
void* __wrap_dlopen(const char*, int);

int __wrap_getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) { return EAI_FAIL; }

int __wrap_getnameinfo(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int) {
  return EAI_FAIL;
}

hostent* __wrap_gethostbyname(const char*) {
  h_errno = NO_RECOVERY;
  return nullptr;
}

servent* __wrap_getservbyname(const char*, const char*) { return nullptr; }

int __wrap_getservbyport_r(int, const char*, servent*, char*, size_t, servent** result) {
  *result = nullptr;
  return ENOENT;
}

void* __wrap_dlopen(const char*, int) { return nullptr; }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
