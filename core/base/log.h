// One line on stderr for what a user may want to know but no call can return.
#ifndef PJ_BASE_LOG_H_
#define PJ_BASE_LOG_H_

typedef enum pj_log_level { PJ_LOG_ERROR, PJ_LOG_WARNING, PJ_LOG_INFO, PJ_LOG_DEBUG } pj_log_level;

// Writes "torch_pjrt: <sentence>" when `level` is at or above the threshold in the environment variable TORCH_PJRT_LOG:
// "off", "error", "warning" (the default), "info" or "debug". The line is one write(2), so lines of several processes
// do not mix; it is cut at 4 KiB.
void pj_log(pj_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
