//! The table of files. To add a kernel file, add a row.
//!
//! Order matters: when time runs out, the rows at the end are skipped. Among rows with a hazard the cheap ones come first.

use super::table::{HUGE, Hazard, LARGE, PAGE, Row};

use Hazard::{
    CgroupMutex, ExecUpdateLock, FlushesRstat, MayBlock, ModuleMutex, NamespaceSem, SendsIpis,
    SendsIpisBefore518, TraceLock, ZoneLock,
};

const PSI: &str = "Linux 4.20 with CONFIG_PSI, and psi=1 where it is off by default";
const V1: &str = "this controller on cgroup version 1";
const V2: &str = "this controller on cgroup version 2";
const CPUFREQ: &str = "a cpufreq driver";
const CPUIDLE: &str = "a cpuidle driver";

/// All rows.
#[rustfmt::skip] // one row is one to three lines: a table
pub const ROWS: &[Row] = &[
    // The host, each second. All are sums of per-CPU counters; reading them waits for no lock that a task can hold long.
    Row::new("stat", "proc/stat", "CPU time by state and CPU, forks, context switches").seconds().cap(LARGE),
    Row::new("loadavg", "proc/loadavg", "runnable and uninterruptible tasks").seconds(),
    Row::new("psi-cpu", "proc/pressure/cpu", "share of time in which tasks waited for CPU").seconds().needs(PSI),
    Row::new("psi-memory", "proc/pressure/memory", "... for memory").seconds().needs(PSI),
    Row::new("psi-io", "proc/pressure/io", "... for I/O").seconds().needs(PSI),
    Row::new("psi-irq", "proc/pressure/irq", "... for interrupts").seconds()
        .needs("Linux 6.1 with CONFIG_PSI and CONFIG_IRQ_TIME_ACCOUNTING"),
    Row::new("vmstat", "proc/vmstat", "reclaim, faults, swap, compaction, NUMA, OOM kills").seconds(),
    Row::new("meminfo", "proc/meminfo", "memory by use").seconds(),
    Row::new("softnet-stat", "proc/net/softnet_stat", "packets, drops and squeezes per CPU").seconds().cap(LARGE),
    Row::new("diskstats", "proc/diskstats", "requests, bytes and time per disk").seconds().cap(LARGE),
    // The host, at both ends.
    Row::new("schedstat", "proc/schedstat", "run and wait time per CPU").ends().cap(HUGE).needs("CONFIG_SCHEDSTATS"),
    Row::new("softirqs", "proc/softirqs", "softirqs by vector and CPU").ends().cap(LARGE),
    Row::new("interrupts", "proc/interrupts", "interrupts by line and CPU").ends().cap(HUGE),
    // Limits of I/O: they are in no table, and without them it is not known which group's limit holds a task. Reading them takes the
    // queue's lock for some ns per disk.
    Row::new("v1-io-limits", "{v1:io:below}/blkio.throttle.{read,write}_{bps,iops}_device", "I/O limits").needs(V1),
    Row::new("v2-io-limits", "{v2:below}/io.max", "I/O limits").needs(V2),
    // Network, once per namespace; the host's own namespace is also here under its usual name.
    Row::new("net", "proc/net/{snmp,netstat,sockstat,dev}", "own namespace: protocol counters, sockets, devices").ends(),
    Row::new("netns", "netns/{netns}/net/{snmp,netstat,sockstat,dev}", "the same of every network namespace").ends(),
    Row::new("netns-6", "netns/{netns}/net/{snmp6,sockstat6}", "IPv6 counters and sockets").ends().needs("IPv6"),
    Row::new("netns-conntrack", "netns/{netns}/net/stat/nf_conntrack", "tracked connections, failed inserts").ends()
        .cap(LARGE).needs("nf_conntrack"),
    Row::new("conntrack", "proc/sys/net/netfilter/nf_conntrack_{count,max,buckets}", "connections tracked, of how many")
        .ends().needs("nf_conntrack"),
    // Identity and configuration.
    Row::new("cmdline", "proc/cmdline", "the kernel's parameters"),
    Row::new("version", "proc/version", "the kernel, its compiler and its preemption model"),
    Row::new("uptime", "proc/uptime", "time since boot"),
    // Read before all others that are read once (background_reads.rs).
    Row::new("sched-ext", "sys/kernel/sched_ext/{state,switch_all,root/ops}", "whether a BPF program schedules the tasks").cap(PAGE)
        .needs("CONFIG_SCHED_CLASS_EXT (Linux 6.12)"),
    Row::new("sysctl-kernel", "proc/sys/kernel/{osrelease,hostname,tainted,pid_max,threads-max,numa_balancing,\
        timer_migration,watchdog,watchdog_thresh,nmi_watchdog,soft_watchdog,hung_task_timeout_secs,hung_task_detect_count,\
        printk,printk_delay,printk_ratelimit,printk_devkmsg,tracepoint_printk,ftrace_enabled,bpf_stats_enabled,\
        perf_event_paranoid,perf_event_max_sample_rate,perf_cpu_time_max_percent,sched_schedstats,\
        sched_autogroup_enabled,sched_cfs_bandwidth_slice_us,sched_rt_period_us,sched_rt_runtime_us,sched_min_granularity_ns,\
        sched_latency_ns,sched_wakeup_granularity_ns,sched_migration_cost_ns,split_lock_mitigate,task_delayacct,\
        kptr_restrict,unprivileged_bpf_disabled,random/boot_id,random/entropy_avail}", "kernel.*: scheduler, watchdogs, \
        tracing, logging"),
    Row::new("sysctl-vm", "proc/sys/vm/{swappiness,dirty_ratio,dirty_background_ratio,dirty_bytes,\
        dirty_background_bytes,dirty_expire_centisecs,dirty_writeback_centisecs,min_free_kbytes,watermark_scale_factor,\
        watermark_boost_factor,zone_reclaim_mode,overcommit_memory,overcommit_ratio,overcommit_kbytes,vfs_cache_pressure,\
        page-cluster,compaction_proactiveness,extfrag_threshold,max_map_count,nr_hugepages,nr_overcommit_hugepages,\
        laptop_mode,panic_on_oom,oom_kill_allocating_task,stat_interval,lowmem_reserve_ratio}", "vm.*; never \
        stat_refresh: reading it makes every CPU flush its counters"),
    Row::new("sysctl-net-core", "proc/sys/net/core/{somaxconn,netdev_budget,netdev_budget_usecs,netdev_max_backlog,\
        dev_weight,rmem_default,rmem_max,wmem_default,wmem_max,optmem_max,rps_sock_flow_entries,busy_poll,busy_read,\
        default_qdisc,bpf_jit_enable}", "net.core.*: queues and budgets"),
    Row::new("sysctl-ipv4", "proc/sys/net/ipv4/{tcp_mem,tcp_rmem,tcp_wmem,udp_mem,tcp_congestion_control,\
        tcp_max_syn_backlog,tcp_syncookies,tcp_abort_on_overflow,tcp_max_tw_buckets,tcp_tw_reuse,tcp_fin_timeout,\
        tcp_slow_start_after_idle,tcp_mtu_probing,tcp_timestamps,tcp_sack,tcp_window_scaling,tcp_moderate_rcvbuf,\
        tcp_notsent_lowat,tcp_limit_output_bytes,tcp_retries2,tcp_syn_retries,tcp_synack_retries,ip_forward,\
        ip_local_port_range,ipfrag_high_thresh,ipfrag_low_thresh,neigh/default/gc_thresh1,neigh/default/gc_thresh2,\
        neigh/default/gc_thresh3}", "net.ipv4.*: memory, queues, ports, neighbours"),
    Row::new("sysctl-ipv6", "proc/sys/net/ipv6/{ip6frag_high_thresh,neigh/default/gc_thresh1,neigh/default/gc_thresh2,\
        neigh/default/gc_thresh3,route/max_size}", "net.ipv6.*: neighbours, routes, fragments").needs("IPv6"),
    Row::new("sysctl-fs", "proc/sys/fs/{file-nr,file-max,nr_open,inode-nr,inode-state,dentry-state,aio-nr,aio-max-nr,\
        inotify/max_user_watches,inotify/max_user_instances,pipe-max-size,pipe-user-pages-soft}", "fs.*: files, inodes, \
        dentries"),
    Row::new("cpus", "sys/devices/system/cpu/{online,possible,present,offline,isolated,nohz_full,smt/active,\
        smt/control}", "which CPUs there are and take part").cap(PAGE),
    Row::new("core-types", "sys/devices/{cpu_core,cpu_atom}/cpus", "large and small cores").cap(PAGE)
        .needs("an Intel CPU with cores of two types"),
    Row::new("kubelet-cpus", "var/lib/kubelet/cpu_manager_state", "CPUs that the kubelet reserved for single containers")
        .needs("a kubelet"),
    Row::new("clocksource", "sys/devices/system/clocksource/clocksource*/{current_clocksource,available_clocksource}",
        "the clock source in use").cap(PAGE),
    Row::new("preempt", "sys/kernel/debug/sched/preempt", "the preemption model in force").cap(PAGE)
        .needs("CONFIG_PREEMPT_DYNAMIC and debugfs; else the model is in proc/version and dev/kmsg"),
    Row::new("vulnerabilities", "sys/devices/system/cpu/vulnerabilities/*", "mitigations in force").cap(PAGE),
    Row::new("thp", "sys/kernel/mm/transparent_hugepage/{enabled,defrag,shmem_enabled,use_zero_page}", "huge pages")
        .cap(PAGE).needs("CONFIG_TRANSPARENT_HUGEPAGE"),
    Row::new("khugepaged", "sys/kernel/mm/transparent_hugepage/khugepaged/{defrag,pages_to_scan,scan_sleep_millisecs,\
        alloc_sleep_millisecs,pages_collapsed,full_scans}", "the huge page daemon").cap(PAGE)
        .needs("CONFIG_TRANSPARENT_HUGEPAGE"),
    Row::new("ksm", "sys/kernel/mm/ksm/{run,pages_to_scan,sleep_millisecs,pages_shared,pages_sharing,pages_unshared,\
        full_scans}", "page merging").cap(PAGE).needs("CONFIG_KSM"),
    Row::new("numa", "sys/devices/system/node/node*/numastat", "memory taken from the wrong node").ends().cap(PAGE)
        .needs("CONFIG_NUMA"),
    Row::new("numa-nodes", "sys/devices/system/node/node*/{cpulist,distance,meminfo}", "nodes, their CPUs and memory")
        .cap(PAGE).needs("CONFIG_NUMA"),
    Row::new("dmi", "sys/class/dmi/id/{sys_vendor,product_name,product_version,board_vendor,board_name,bios_vendor,\
        bios_version,bios_date,bios_release,chassis_type}", "the machine and its BIOS; no serial numbers").cap(PAGE)
        .needs("SMBIOS tables"),
    Row::new("edac", "sys/devices/system/edac/mc/mc*/{mc_name,ce_count,ue_count,ce_noinfo_count,ue_noinfo_count,\
        seconds_since_reset}", "memory errors, as the driver counted them").cap(PAGE)
        .needs("a memory controller with an EDAC driver"),
    Row::new("powercap", "sys/class/powercap/*/{name,constraint_0_name,constraint_1_name}", "power domains, not their \
        values").cap(PAGE).needs("a powercap driver"),
    Row::new("intel-pstate", "sys/devices/system/cpu/intel_pstate/{status,no_turbo,max_perf_pct,min_perf_pct}",
        "limits of the Intel frequency driver").cap(PAGE).needs("intel_pstate"),
    Row::new("amd-pstate", "sys/devices/system/cpu/amd_pstate/{status,prefcore}", "mode of the AMD frequency driver")
        .cap(PAGE).needs("amd_pstate"),
    Row::new("boost", "sys/devices/system/cpu/cpufreq/boost", "turbo, where acpi-cpufreq or amd-pstate offers it")
        .cap(PAGE).needs(CPUFREQ),
    Row::new("idle-parameters", "sys/module/{intel_idle,processor}/parameters/*", "C-state limits").cap(PAGE)
        .needs("intel_idle or the ACPI processor driver"),
    Row::new("cpuidle", "sys/devices/system/cpu/cpuidle/{current_driver,current_governor,current_governor_ro}",
        "the idle driver and governor").cap(PAGE).needs(CPUIDLE),
    Row::new("cpufreq", "sys/devices/system/cpu/cpufreq/policy*/{affected_cpus,scaling_driver,scaling_governor,\
        scaling_min_freq,scaling_max_freq,cpuinfo_min_freq,cpuinfo_max_freq,cpuinfo_transition_latency,bios_limit,\
        energy_performance_available_preferences}", "frequency policy and limits").cap(PAGE).needs(CPUFREQ),
    Row::new("kmsg", "dev/kmsg", "tail of the kernel's log, read without waiting for more").cap(256 << 10),
    // Disks and NICs.
    Row::new("disk", "sys/block/{disk}/{size,ro,removable,queue/rotational}", "disks").cap(PAGE),
    Row::new("nic", "sys/class/net/{nic}/{mtu,operstate,carrier_changes,tx_queue_len,type,flags}", "devices")
        .ends().cap(PAGE),
    Row::new("nic-drops", "sys/class/net/{nic}/statistics/{rx_dropped,rx_missed_errors,rx_fifo_errors,rx_over_errors,\
        rx_nohandler,tx_dropped,tx_fifo_errors}", "drops that net/dev adds up").ends().cap(PAGE),
    Row::new("rps", "sys/class/net/{nic}/queues/rx-*/{rps_cpus,rps_flow_cnt}", "software steering of packets").cap(PAGE),
    // Processes.
    Row::new("process", "proc/{pid}/{stat,status,schedstat}", "the busiest processes").cap(PAGE * 4),
    // Cgroups: only files that are a few words in memory.
    Row::new("v1-cpu", "{v1:cpu}/{cpu.shares,cpu.cfs_quota_us,cpu.cfs_period_us,cpu.cfs_burst_us}", "CPU weight, quota")
        .cap(PAGE).needs(V1),
    Row::new("v1-cpu-stat", "{v1:cpu}/cpu.stat", "throttling; does not flush on version 1").ends().cap(PAGE).needs(V1),
    Row::new("v1-cpuacct", "{v1:cpuacct}/cpuacct.usage", "CPU time").ends().cap(PAGE).needs(V1),
    Row::new("v1-memory", "{v1:memory}/{memory.limit_in_bytes,memory.soft_limit_in_bytes,memory.memsw.limit_in_bytes,\
        memory.swappiness}", "memory limits").cap(PAGE).needs(V1),
    Row::new("v1-memory-hits", "{v1:memory}/{memory.failcnt,memory.memsw.failcnt,memory.oom_control}",
        "how often the limit was met; OOM kills").ends().cap(PAGE).needs(V1),
    Row::new("v1-memory-usage", "{v1:memory:below}/{memory.usage_in_bytes,memory.memsw.usage_in_bytes,\
        memory.max_usage_in_bytes}", "memory used; the root's is not read: it flushed in Linux 5.13 to 6.5").ends()
        .cap(PAGE).needs(V1),
    Row::new("v1-io", "{v1:io}/blkio.throttle.{io_service_bytes,io_serviced}", "bytes and requests per disk").ends()
        .needs(V1),
    Row::new("v1-pids", "{v1:pids:below}/{pids.current,pids.max,pids.events}", "tasks, of how many").ends().cap(PAGE)
        .needs(V1),
    Row::new("v2-cgroup", "{v2}/{cgroup.stat,cgroup.controllers}", "groups below, also dying ones").ends().cap(PAGE)
        .needs("cgroup version 2"),
    Row::new("v2-cpu", "{v2:below}/{cpu.max,cpu.max.burst,cpu.weight,cpu.idle}", "CPU weight, quota").cap(PAGE).needs(V2),
    Row::new("v2-cpu-local", "{v2:below}/cpu.stat.local", "time throttled by its own quota; does not flush").ends()
        .cap(PAGE).needs("Linux 6.7 with the cpu controller on cgroup version 2"),
    Row::new("v2-memory", "{v2:below}/{memory.current,memory.events,memory.events.local,memory.swap.current,\
        memory.swap.events}", "memory used; limits met").ends().cap(PAGE).needs(V2),
    Row::new("v2-memory-limits", "{v2:below}/{memory.max,memory.high,memory.low,memory.min,memory.swap.max,\
        memory.swap.high}", "memory limits").cap(PAGE).needs(V2),
    Row::new("v2-io", "{v2:below}/{io.latency,io.weight}", "shares of I/O").needs(V2),
    Row::new("v2-pids", "{v2:below}/{pids.current,pids.max,pids.events}", "tasks, of how many").ends().cap(PAGE).needs(V2),
    Row::new("v2-psi", "{v2:below}/{cpu,memory,io}.pressure", "share of time in which its tasks waited").ends().cap(PAGE)
        .needs(PSI),
    // Per CPU: many files on big machines, so last.
    Row::new("topology", "sys/devices/system/cpu/{cpu}/topology/{core_id,physical_package_id,die_id,cluster_id,\
        thread_siblings_list,core_cpus_list,package_cpus_list}", "cores, threads, packages").cap(PAGE),
    Row::new("capacity", "sys/devices/system/cpu/{cpu}/cpu_capacity", "how much a core can do, where cores differ").cap(PAGE)
        .needs("arm64, or x86 since Linux 6.12"),
    Row::new("thermal-throttle", "sys/devices/system/cpu/{cpu}/thermal_throttle/*", "throttled for heat: counts that \
        the driver keeps").ends().cap(PAGE).needs("an Intel CPU with thermal interrupts, not virtual"),
    Row::new("microcode", "sys/devices/system/cpu/{cpu}/microcode/version", "microcode").cap(PAGE)
        .needs("the microcode driver, not virtual"),
    Row::new("wakeup-limits", "sys/devices/system/cpu/{cpu}/power/pm_qos_resume_latency_us", "limits on the latency of \
        wake-ups, set by programs or users").cap(PAGE).needs("CONFIG_PM"),
    Row::new("cpuidle-words", "sys/devices/system/cpu/cpu0/cpuidle/state*/{desc,default_status}", "the driver's descriptions of its idle states and their default, for one CPU: all CPUs have the same").cap(PAGE).needs(CPUIDLE),
    Row::new("cpuidle-use", "sys/devices/system/cpu/{cpu}/cpuidle/state*/{usage,time}", "use of idle states").ends()
        .cap(PAGE).needs(CPUIDLE),
    Row::new("cpuidle-states", "sys/devices/system/cpu/{cpu}/cpuidle/state*/{name,latency,residency,disable}",
        "idle states and their exit latency").cap(PAGE).needs(CPUIDLE),

    // With a hazard: once, last, by the disposable child. Rows that are cheap and seldom wait come first: a read that waits delays
    // all later ones. /proc/cpuinfo takes milliseconds on hundreds of CPUs.
    Row::new("process-io", "proc/{pid}/io", "I/O of the busiest processes").hazard(&[ExecUpdateLock]).cap(PAGE)
        .needs("CONFIG_TASK_IO_ACCOUNTING"),
    Row::new("buddyinfo", "proc/buddyinfo", "free memory by order").hazard(&[ZoneLock]),
    Row::new("disk-queue", "sys/block/{disk}/queue/{scheduler,nr_requests,read_ahead_kb,max_sectors_kb,nomerges,\
        rq_affinity,wbt_lat_usec,write_cache,logical_block_size}", "queue settings; the attribute's lock is held while \
        a change waits for the device").hazard(&[MayBlock]).cap(PAGE),
    Row::new("current-tracer", "sys/kernel/tracing/current_tracer", "a tracer that is still on").hazard(&[TraceLock]).cap(PAGE)
        .needs("tracefs"),
    Row::new("modules", "proc/modules", "modules").hazard(&[ModuleMutex]).cap(LARGE).needs("CONFIG_MODULES"),
    Row::new("mountinfo", "proc/self/mountinfo", "mounts").hazard(&[NamespaceSem]).cap(LARGE),
    Row::new("zoneinfo", "proc/zoneinfo", "watermarks and free memory by zone").hazard(&[ZoneLock]).cap(LARGE),
    Row::new("cgroups", "proc/cgroups", "number of cgroups by controller, dying ones too; the lock is gone since 5.16")
        .hazard(&[CgroupMutex]),
    Row::new("nic-link", "sys/class/net/{nic}/{speed,duplex}", "link; takes rtnl and asks the device").hazard(&[MayBlock])
        .cap(PAGE).needs("a network device with link"),
    Row::new("cur-freq", "sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq", "current frequency")
        .hazard(&[SendsIpisBefore518, MayBlock]).cap(PAGE).needs(CPUFREQ),
    Row::new("cpuinfo", "proc/cpuinfo", "CPU model and flags; interrupts every CPU where frequencies are sampled on \
        reading").hazard(&[SendsIpisBefore518]).cap(HUGE),
    Row::new("v2-cpu-stat", "{v2:top}/cpu.stat", "CPU time and throttling").hazard(&[FlushesRstat]).cap(PAGE).needs(V2),
    Row::new("v2-io-stat", "{v2:top}/io.stat", "I/O per disk").hazard(&[FlushesRstat]).needs(V2),
    Row::new("memory-stat", "{limited}/memory.stat", "memory by use, where a limit was met or is near; v1 before 5.13: a \
        walk over the groups below").hazard(&[FlushesRstat]),

    // Never: each read interrupts the CPU concerned and spins until it answers (acpi-cpufreq drv_read; rdmsr_on_cpu).
    Row::new("hardware-freq", "sys/devices/system/cpu/cpufreq/policy*/cpuinfo_cur_freq", "frequency from the hardware")
        .never(&[SendsIpis]).needs(CPUFREQ),
    Row::new("epp", "sys/devices/system/cpu/cpufreq/policy*/{energy_performance_preference,base_frequency}",
        "intel_pstate reads the CPU's register").never(&[SendsIpis]).needs(CPUFREQ),
    Row::new("epb", "sys/devices/system/cpu/{cpu}/power/energy_perf_bias", "reads the CPU's register").never(&[SendsIpis]),
    Row::new("power-limit", "sys/class/powercap/*/{energy_uj,constraint_0_power_limit_uw,constraint_1_power_limit_uw}",
        "intel_rapl reads the package's register").never(&[SendsIpis]).needs("a powercap driver"),
];
