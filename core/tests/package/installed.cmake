# A C user finds the installed library, by find_package and by pkg-config, also after the whole was moved.
# Run as: cmake -DBUILD=<build folder> -DEXAMPLE=<examples/c> -DCOMPILER=<cc> -DGENERATOR=<name> -DSCRATCH=<folder> -P installed.cmake
#
# Leaves the example at SCRATCH/example/mlp.
set(prefix ${SCRATCH}/moved)
file(REMOVE_RECURSE ${SCRATCH})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/installed OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${SCRATCH}/installed ${prefix})

execute_process(COMMAND ${CMAKE_COMMAND} -S ${EXAMPLE} -B ${SCRATCH}/example -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}
                        -DCMAKE_C_COMPILER=${COMPILER} -DCMAKE_C_FLAGS=${FLAGS} -DCMAKE_PREFIX_PATH=${prefix}
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${SCRATCH}/example OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

find_program(PKG_CONFIG pkg-config)
if(NOT PKG_CONFIG)
  message("pkg-config is not on this machine: pj.pc was not tried")
  return()
endif()
file(GLOB_RECURSE description ${prefix}/pj.pc)
get_filename_component(folder "${description}" DIRECTORY)
set(ENV{PKG_CONFIG_PATH} "${folder}")
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs pj OUTPUT_VARIABLE options OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(options UNIX_COMMAND "${options} ${FLAGS}")
execute_process(COMMAND ${COMPILER} ${EXAMPLE}/mlp.c -o ${SCRATCH}/mlp ${options} -lm COMMAND_ERROR_IS_FATAL ANY)
