# Installs the units, which contain the installation's folders: these are known only now. Expects
# CMAKE_INSTALL_PREFIX and FO_BINDIR.

get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
# In a command line, unlike in a file's name, systemd reads a blank as the end of a word.
string(REPLACE " " "\\x20" bindir "${prefix}/${FO_BINDIR}")
set(sysconfdir ${prefix}/etc)
if(prefix STREQUAL "/usr")
  set(sysconfdir /etc)
endif()
set(settings EnvironmentFile=-${sysconfdir}/default/gms-serve)

# install_unit(NAME): creates the unit NAME from gms-serve.service.in.
function(install_unit name)
  set(unit ${prefix}/lib/systemd/system/${name})
  message(STATUS "Installing: $ENV{DESTDIR}${unit}")
  configure_file(${CMAKE_CURRENT_LIST_DIR}/gms-serve.service.in "$ENV{DESTDIR}${unit}" @ONLY)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${unit}")
  set(CMAKE_INSTALL_MANIFEST_FILES ${CMAKE_INSTALL_MANIFEST_FILES} PARENT_SCOPE)
endfunction()

set(heading "# All GPUs of a node. Clients find the sockets by GMS_SOCKET_DIR=/run/gms.")
set(description "GPU memory server")
set(conflicts "")
set(folder gms)
set(environment "Environment=GMS_SOCKET_DIR=/run/gms CUDA_DEVICE_ORDER=PCI_BUS_ID\n${settings}")
install_unit(gms-serve.service)

set(heading "# One GPU, gms-serve@N for device N: when it fails, the others are served on. Its clients have
# GMS_SOCKET_DIR=/run/gms/N, CUDA_VISIBLE_DEVICES=N and CUDA_DEVICE_ORDER=PCI_BUS_ID, by which N is
# that of nvidia-smi. In place of gms-serve.service.")
set(description "GPU memory server of device %i")
set(conflicts "\nConflicts=gms-serve.service")
set(folder gms/%i)
set(environment "Environment=GMS_SOCKET_DIR=/run/gms/%i CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=%i\n${settings}\n${settings}@%i")
install_unit(gms-serve@.service)

# Keeps the administrator's settings.
if(NOT EXISTS "$ENV{DESTDIR}${sysconfdir}/default/gms-serve")
  file(INSTALL DESTINATION "${sysconfdir}/default" TYPE FILE RENAME gms-serve
       FILES ${CMAKE_CURRENT_LIST_DIR}/gms-serve.default)
endif()
