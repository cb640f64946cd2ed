/* Requests of kvfsctl to the daemon, by ioctl(2) on the root directory of a mount. */
#ifndef FS_IOCTL_H
#define FS_IOCTL_H

#include <sys/ioctl.h>

/* Everything written so far is durable on return. (The kernel does not pass sync(2) on.) */
#define KVFS_IOC_SYNC _IO('k', 1)

#define KVFS_STATS_BYTES 8192
/* Lines "name value  meaning", then a table of how long things take; 0-terminated. */
struct kvfs_stats_text {
	char s[KVFS_STATS_BYTES];
};
#define KVFS_IOC_STATS _IOR('k', 2, struct kvfs_stats_text)

#endif
