// Faults on demand, so that tests can show what a compiler survives.
#ifndef PJ_WORKER_FAULT_H_
#define PJ_WORKER_FAULT_H_

// Plays the fault that the environment variable PJ_WORKER_FAULT asks for at compile request number `request` (1 is
// the first that this worker gets): "abort", "hang", "memory", "garbage", "lie", "exit" or "chatter", each with ":N"
// for the N-th request only. Returns where no fault is due, and after the faults that do not end the request.
void pj_worker_fault(int request);

#endif
