// Package seccomp is what programs in a container may ask of the host's kernel: the
// policy, as a list of names, and two forms of it for runtimes. crun gets a program
// for the kernel's filter, compiled here once per process, because libseccomp would
// compile the policy anew for every start, which takes three times as long as all the
// rest. runc has no such door and gets the same policy in the form of the OCI
// specification.
//
// The numbers of system calls are generated from golang.org/x/sys/unix. The policy is
// written by hand, and nothing else is.
package seccomp

import "golang.org/x/sys/unix"

// allowedCalls are the system calls that a container may use with any
// arguments. Whatever is in neither list, and every call that a later kernel
// brings, fails with ENOSYS, so that programs take their older way. So do the
// calls of asynchronous I/O (io_setup and its kin): the host has 65536 events
// of it for everybody, and databases fall back to threads. Of the calls with a
// rule of their own see [rules].
const allowedCalls = `
	accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir
	chmod chown chroot clock_getres clock_gettime clock_nanosleep close close_range connect
	copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2
	epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate
	fchdir fchmod fchmodat fchmodat2 fchown fchownat fdatasync fgetxattr flistxattr flock fork
	fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv
	futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid
	geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
	getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
	getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioprio_get ioprio_set kill
	landlock_add_rule
	landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen listxattr
	llistxattr lremovexattr lseek lsetxattr lstat madvise membarrier memfd_create memfd_secret mincore
	mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open
	mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock
	munlockall munmap nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe
	pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64
	process_vm_readv process_vm_writev pselect6 ptrace pwrite64 pwritev pwritev2 read readahead readlink
	readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr rename renameat renameat2
	restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
	rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
	sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
	sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl
	semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area
	set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid
	setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat shmctl shmdt shmget shutdown
	sigaltstack signalfd signalfd4 socketpair splice stat statfs statx symlink symlinkat sync
	sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
	timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate
	umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev
`

// deniedCalls fail with EPERM, as they would for want of a capability: they
// mount, make namespaces, load code into the kernel, hold keys, trace the
// host, or set its clock.
const deniedCalls = `
	acct add_key bpf clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig
	fsmount fsopen fspick get_mempolicy init_module ioperm iopl kcmp kexec_file_load kexec_load keyctl
	mbind migrate_pages mount mount_setattr move_mount move_pages open_by_handle_at open_tree
	perf_event_open pidfd_getfd pivot_root process_madvise quotactl quotactl_fd reboot request_key
	set_mempolicy setdomainname sethostname setns settimeofday swapoff swapon syslog umount2 unshare
	userfaultfd vhangup
`

// rule allows one call for some arguments. A call that no check accepts fails
// with errno.
type rule struct {
	call  string
	arg   int
	mask  uint32   // of the argument's lower half; 0: all bits
	in    []uint32 // accepted values after masking…
	not   bool     // …or refused ones
	errno unix.Errno
}

// namespaceFlags are the flags of clone that make namespaces.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

var rules = []rule{
	{call: "clone", arg: 0, mask: namespaceFlags, in: []uint32{0}, errno: unix.EPERM},
	// Its flags are in memory, where a filter cannot look. Without it the C
	// library uses clone.
	{call: "clone3", errno: unix.ENOSYS},
	{call: "personality", in: []uint32{0, 8, 0x20000, 0x20008, 0xffffffff}, errno: unix.EPERM},
	{call: "socket", in: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}, errno: unix.EAFNOSUPPORT},
	// Locks of open file descriptions: there can be any number of them on a file
	// that is on its way through a socket, where nobody can count them. Kernels
	// before 3.15 fail the same way.
	{call: "fcntl", arg: 1, in: []uint32{unix.F_OFD_SETLK, unix.F_OFD_SETLKW}, not: true, errno: unix.EINVAL},
	// Neither types into another one's terminal.
	{call: "ioctl", arg: 1, in: []uint32{unix.TIOCSTI, unix.TIOCLINUX}, not: true, errno: unix.EPERM},
}
