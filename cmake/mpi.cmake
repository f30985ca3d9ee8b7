# The plug-ins for MPI: src/comm/mpi/plugin.c, compiled against each MPI library that is found, as a module
# that the library loads when it is asked for. Nothing else is linked with an MPI. LK_PLUGINS are the targets.
set(LK_PLUGINS)
pkg_check_modules(OPENMPI ompi-c)
pkg_check_modules(MPICH mpich)

file(RELATIVE_PATH plugins_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/lockstep)
set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/src/comm/mpi/load.c APPEND PROPERTY COMPILE_DEFINITIONS
  LK_PLUGINS_DIR="${CMAKE_INSTALL_FULL_LIBDIR}/lockstep" LK_PLUGINS_FROM_BIN="${plugins_from_bin}")

foreach(name openmpi mpich)
  string(TOUPPER ${name} found)
  if(NOT ${found}_FOUND)
    continue()
  endif()
  add_library(plugin_${name} MODULE ${CMAKE_CURRENT_SOURCE_DIR}/src/comm/mpi/plugin.c)
  set_target_properties(plugin_${name} PROPERTIES PREFIX "" OUTPUT_NAME lockstep-${name}
    INSTALL_RPATH_USE_LINK_PATH ON)
  target_include_directories(plugin_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_include_directories(plugin_${name} SYSTEM PRIVATE ${${found}_INCLUDE_DIRS})
  target_compile_definitions(plugin_${name} PRIVATE LK_MPI_NAME="${name}")
  target_link_directories(plugin_${name} PRIVATE ${${found}_LIBRARY_DIRS})
  target_link_libraries(plugin_${name} PRIVATE ${${found}_LIBRARIES})
  list(APPEND LK_PLUGINS plugin_${name})
endforeach()
# Beside the program in a build.
add_custom_target(plugins DEPENDS ${LK_PLUGINS})

# bench_mpi_NAME: the transport beside MPI_Sendrecv, linked with that MPI.
foreach(name openmpi mpich)
  string(TOUPPER ${name} found)
  if(TARGET plugin_${name})
    add_executable(bench_mpi_${name} EXCLUDE_FROM_ALL bench/mpi_sendrecv.c src/comm/mpi/plugin.c)
    target_include_directories(bench_mpi_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
    target_include_directories(bench_mpi_${name} SYSTEM PRIVATE ${${found}_INCLUDE_DIRS})
    target_link_directories(bench_mpi_${name} PRIVATE ${${found}_LIBRARY_DIRS})
    target_link_libraries(bench_mpi_${name} PRIVATE lockstep ${${found}_LIBRARIES})
  endif()
endforeach()

# example_from_mpi_NAME: a program of that MPI that makes a group of its ranks.
foreach(name openmpi mpich)
  string(TOUPPER ${name} found)
  if(TARGET plugin_${name})
    add_executable(example_from_mpi_${name} EXCLUDE_FROM_ALL examples/mpi/from_mpi.c)
    set_target_properties(example_from_mpi_${name} PROPERTIES OUTPUT_NAME from_mpi_${name}
      RUNTIME_OUTPUT_DIRECTORY examples)
    target_include_directories(example_from_mpi_${name} SYSTEM PRIVATE ${${found}_INCLUDE_DIRS})
    target_link_directories(example_from_mpi_${name} PRIVATE ${${found}_LIBRARY_DIRS})
    target_link_libraries(example_from_mpi_${name} PRIVATE lockstep ${${found}_LIBRARIES})
    list(APPEND LK_MPI_EXAMPLES example_from_mpi_${name})
  endif()
endforeach()
