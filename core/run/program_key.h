// What a compiled program depends on, as SHA-256.
#ifndef PJ_RUN_PROGRAM_KEY_H_
#define PJ_RUN_PROGRAM_KEY_H_

#include "pj/pjrt.h"

enum { PJ_KEY_SIZE = 32 };

// Key of a program within one process: its text and its encoded compile options.
void pj_program_key(const char *code, size_t code_size, const uint8_t *options, size_t options_size,
                    uint8_t out_key[PJ_KEY_SIZE]);

// All else that its machine code depends on: the plugin's file, versions and platform, the kind and number of
// devices, the compiler's flags in the environment and, for the platform "cpu", the host CPU's model and features.
void pj_environment_key(const pj_client *client, const uint8_t plugin_digest[32], uint8_t out_key[PJ_KEY_SIZE]);

// Key on disk: both of the above.
void pj_disk_key(const uint8_t environment[PJ_KEY_SIZE], const uint8_t program[PJ_KEY_SIZE],
                 uint8_t out_key[PJ_KEY_SIZE]);

// Key under which the cache remembers the digest of a plugin file, so that a start does not read 200 MB: its device,
// inode, size and times. NOT_FOUND when the file is gone.
pj_status pj_plugin_file_key(const pj_plugin *plugin, uint8_t out_key[PJ_KEY_SIZE]);

#endif
