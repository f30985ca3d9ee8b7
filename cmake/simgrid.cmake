# The module that bench/scale/run starts under SimGrid: simulated ranks with Lockstep's own schedules and MPI
# transport. SMPI loads one copy of it for each rank, so it is a module with a main().
pkg_check_modules(SIMGRID simgrid)
if(SIMGRID_FOUND AND EXISTS ${SIMGRID_INCLUDEDIR}/smpi/smpi.h)
  file(GLOB LK_SCALE_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/bench/scale/*.c)
  add_library(scale MODULE EXCLUDE_FROM_ALL ${LK_SCALE_SOURCES})
  set_target_properties(scale PROPERTIES PREFIX "" OUTPUT_NAME lockstep-scale)
  target_include_directories(scale PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_include_directories(scale SYSTEM PRIVATE ${SIMGRID_INCLUDEDIR})
  target_link_directories(scale PRIVATE ${SIMGRID_LIBRARY_DIRS})
  target_link_libraries(scale PRIVATE lockstep ${SIMGRID_LIBRARIES})
endif()
