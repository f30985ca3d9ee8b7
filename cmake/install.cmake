# The files of `make install`. The pkg-config file and the CMake package find the prefix from their own location, so an
# installation can be packaged or moved. Programs that use the shared library need no other library; those that use
# the static one link its dependencies too, which LK_STATIC_LIBRARIES lists. The list has flags, and no
# Requires.private: pkg-config would look for the development files of all these libraries also for --cflags.
set(LK_STATIC_LIBRARIES -lz)
foreach(library XXHASH CJSON SODIUM ${LK_OPTIONAL})
  if(${library}_FOUND)
    list(APPEND LK_STATIC_LIBRARIES ${${library}_LDFLAGS})
  endif()
endforeach()
# Folders that every linker searches.
foreach(folder ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES})
  list(REMOVE_ITEM LK_STATIC_LIBRARIES -L${folder})
endforeach()
# The CUDA runtime of the toolkit is linked statically, too; its folder is known where the toolkit is.
if(LK_CUDA_FOUND)
  list(APPEND LK_STATIC_LIBRARIES -lcudart_static -lrt)
endif()
list(APPEND LK_STATIC_LIBRARIES -lm -ldl -pthread)
list(JOIN LK_STATIC_LIBRARIES " " LK_STATIC_FLAGS)

# lk_pc_path(NAME FOLDER) - sets NAME to FOLDER as a line of the pkg-config file has it.
function(lk_pc_path name folder)
  if(NOT IS_ABSOLUTE ${folder})
    set(folder "\${prefix}/${folder}")
  endif()
  set(${name} ${folder} PARENT_SCOPE)
endfunction()

set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
set(LK_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${pc_dir})
  file(RELATIVE_PATH LK_PC_PREFIX /prefix/${pc_dir} /prefix)
  string(REGEX REPLACE "(.*[^/])/*$" "\${pcfiledir}/\\1" LK_PC_PREFIX "${LK_PC_PREFIX}")
endif()
lk_pc_path(LK_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
lk_pc_path(LK_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
configure_file(${CMAKE_CURRENT_LIST_DIR}/lockstep.pc.in ${generated}/lockstep.pc @ONLY)

install(TARGETS lockstep ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS lockstep-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(LK_PLUGINS)
  install(TARGETS ${LK_PLUGINS} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
endif()
if(LK_PAGES)
  install(DIRECTORY ${LK_PAGES}/man/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${LK_PAGES}/completions/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${LK_PAGES}/completions/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()
install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${generated}/lockstep.pc DESTINATION ${pc_dir})

# find_package(lockstep). Before 1.0.0 a minor version may change names.
if(LK_SHARED)
  include(CMakePackageConfigHelpers)
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstep-config.cmake.in ${generated}/lockstep-config.cmake
    INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(${generated}/lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(TARGETS lockstep_shared EXPORT lockstep-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION ${package_dir})
  install(FILES ${generated}/lockstep-config.cmake ${generated}/lockstep-config-version.cmake
    DESTINATION ${package_dir})
endif()
