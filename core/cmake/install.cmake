# What `cmake --install` gives a C user: the library, its headers, the compile worker in lib/pj, and the descriptions by
# which pkg-config and find_package(pj) find them. All of it may be moved together.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(PJ_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/pj)
file(RELATIVE_PATH PJ_PREFIX_FROM_PKGCONFIG /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/pj.pc.in ${PROJECT_BINARY_DIR}/pj.pc @ONLY)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/pjConfig.cmake.in ${PROJECT_BINARY_DIR}/pjConfig.cmake
  INSTALL_DESTINATION ${PJ_CONFIG_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pjConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS pj EXPORT pjTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS pj-worker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/pj)
install(DIRECTORY include/pj DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT pjTargets NAMESPACE pj:: DESTINATION ${PJ_CONFIG_DIR})
install(FILES ${PROJECT_BINARY_DIR}/pjConfig.cmake ${PROJECT_BINARY_DIR}/pjConfigVersion.cmake DESTINATION ${PJ_CONFIG_DIR})
install(FILES ${PROJECT_BINARY_DIR}/pj.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
