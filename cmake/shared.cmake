# liblockstep.so beside the static library, of the same objects. It exports what the public headers declare
# (LK_API_BEGIN) and nothing else, so the program and the tests, which use other names too, link the static one. LK_SHARED
# is the target; builds with sanitizers or fuzzers, which are not installed, have none.
#
# LK_SOVERSION is raised with every change that breaks programs built before it (tools/check_abi).
set(LK_SOVERSION 0)
set(LK_SHARED)
if(NOT LK_SANITIZE AND NOT LK_FUZZ)
  set(LK_SHARED lockstep_shared)
  add_library(lockstep_shared SHARED $<TARGET_OBJECTS:lockstep> ${LK_KERNEL_OBJECTS} ${LK_CUDA_OBJECTS})
  set_target_properties(lockstep_shared PROPERTIES OUTPUT_NAME lockstep EXPORT_NAME lockstep LINKER_LANGUAGE C
    VERSION ${PROJECT_VERSION} SOVERSION ${LK_SOVERSION})
  target_include_directories(lockstep_shared INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # The static library gives its dependencies; none of its own objects is missing any more.
  target_link_libraries(lockstep_shared PRIVATE lockstep)
  target_link_options(lockstep_shared PRIVATE -Wl,-z,defs -Wl,--as-needed -Wl,-Bsymbolic-functions
    -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map)
  set_target_properties(lockstep_shared PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/exports.map)
  add_library(lockstep::lockstep ALIAS lockstep_shared)
endif()
add_library(lockstep::static ALIAS lockstep)
