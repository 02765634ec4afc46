package usage

// who has cAdvisor's labels of an object with a cgroup.
type who struct{ container, id, image, name, namespace, pod string }

var whoLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

func (w who) labels() []string {
	return []string{w.container, w.id, w.image, w.name, w.namespace, w.pod}
}

// cadvisor holds cAdvisor's metrics, each named as in cAdvisor.
type cadvisor struct {
	all []metric

	cpu, user, system, periods, throttled, throttledFor  metric
	memory, workingSet, rss, cache, mapped, maxUsage     metric
	active, inactive, swap, faults, failcnt, oom         metric
	highEvents, maxEvents, dirty, writeback              metric
	scanned, reclaimed, refaultedFile, refaultedAnon     metric
	bursts, burstFor                                     metric
	processes, threads, maxThreads, started, lastSeen    metric
	fsUsed, fsLimit, inodes, inodesFree                  metric
	reads, writes, readBytes, writtenBytes, blkio        metric
	readsMerged, sectorsRead, readTime                   metric
	writesMerged, sectorsWritten, writeTime              metric
	inFlight, busy, busyWeighted                         metric
	files, openSockets, ulimits, kernel                  metric
	rxBytes, txBytes, rxErrors, txErrors                 metric
	rxPackets, txPackets, rxDropped, txDropped           metric
	cpuWaiting, cpuStalled, memoryWaiting                metric
	memoryStalled, ioWaiting, ioStalled                  metric
	specShares, specPeriod, specQuota                    metric
	specMemory, specLow, specSwap                        metric
	cores, physical, sockets, machineMemory, machineSwap metric
	failed                                               metric
}

func newCadvisor() *cadvisor {
	c := &cadvisor{}
	add := func(dst *metric, m metric) {
		*dst = m
		c.all = append(c.all, m)
	}
	with := func(more ...string) []string { return append(whoLabels[:len(whoLabels):len(whoLabels)], more...) }
	type named struct {
		dst        *metric
		name, help string
	}
	for _, n := range []named{
		{&c.user, "container_cpu_user_seconds_total", "CPU time in user mode."},
		{&c.system, "container_cpu_system_seconds_total", "CPU time in the kernel."},
		{&c.periods, "container_cpu_cfs_periods_total", "Periods of the CPU quota."},
		{&c.throttled, "container_cpu_cfs_throttled_periods_total", "Periods in which the CPU quota was used up."},
		{&c.throttledFor, "container_cpu_cfs_throttled_seconds_total", "Time for which the CPU quota was used up."},
		{&c.failcnt, "container_memory_failcnt", "Times that the memory limit was hit."},
		{&c.oom, "container_oom_events_total", "OOM kills of processes."},
		{&c.bursts, "container_cpu_cfs_burst_periods_total", "Periods in which more than the CPU quota was used."},
		{&c.burstFor, "container_cpu_cfs_burst_seconds_total", "CPU time above the quota."},
		{&c.highEvents, "container_memory_events_high_total", "Times that memory.high throttled."},
		{&c.maxEvents, "container_memory_events_max_total", "Times that memory.max was about to be exceeded."},
		{&c.scanned, "container_memory_pgscan_total", "Pages scanned by reclaim."},
		{&c.reclaimed, "container_memory_pgsteal_total", "Pages reclaimed."},
		{&c.refaultedFile, "container_memory_workingset_refault_file_total", "File pages that were needed again after reclaim."},
		{&c.refaultedAnon, "container_memory_workingset_refault_anon_total", "Anonymous pages that were needed again after reclaim."},
		{&c.cpuWaiting, "container_pressure_cpu_waiting_seconds_total", "Time in which some tasks waited for a CPU."},
		{&c.cpuStalled, "container_pressure_cpu_stalled_seconds_total", "Time in which all tasks waited for a CPU."},
		{&c.memoryWaiting, "container_pressure_memory_waiting_seconds_total", "Time in which some tasks waited for memory."},
		{&c.memoryStalled, "container_pressure_memory_stalled_seconds_total", "Time in which all tasks waited for memory."},
		{&c.ioWaiting, "container_pressure_io_waiting_seconds_total", "Time in which some tasks waited for I/O."},
		{&c.ioStalled, "container_pressure_io_stalled_seconds_total", "Time in which all tasks waited for I/O."},
	} {
		add(n.dst, counter(n.name, n.help, whoLabels...))
	}
	for _, n := range []named{
		{&c.memory, "container_memory_usage_bytes", "Memory in use, caches included."},
		{&c.workingSet, "container_memory_working_set_bytes", "Memory in use, without inactive file pages."},
		{&c.rss, "container_memory_rss", "Memory of processes, in bytes."},
		{&c.cache, "container_memory_cache", "Memory of the page cache, in bytes."},
		{&c.mapped, "container_memory_mapped_file", "Memory of mapped files, in bytes."},
		{&c.maxUsage, "container_memory_max_usage_bytes", "Highest memory usage."},
		{&c.dirty, "container_memory_file_dirty_bytes", "Memory of the page cache that is not on a disk yet."},
		{&c.writeback, "container_memory_file_writeback_bytes", "Memory of the page cache that is being written to a disk."},
		{&c.active, "container_memory_total_active_file_bytes", "Memory of files that were used lately."},
		{&c.inactive, "container_memory_total_inactive_file_bytes", "Memory of files that were not used lately."},
		{&c.kernel, "container_memory_kernel_usage", "Memory of the kernel, in bytes."},
		{&c.swap, "container_memory_swap", "Swap in use, in bytes; 0 also if it is not counted."},
		{&c.processes, "container_processes", "Processes."},
		{&c.files, "container_file_descriptors", "Files that are open."},
		{&c.openSockets, "container_sockets", "Sockets that are open."},
		{&c.threads, "container_threads", "Threads."},
		{&c.maxThreads, "container_threads_max", "Limit of threads; 0 means no limit."},
		{&c.started, "container_start_time_seconds", "Start, Unix time."},
		{&c.lastSeen, "container_last_seen", "Time of the last measurement, Unix time."},
		{&c.specShares, "container_spec_cpu_shares", "CPU weight."},
		{&c.specPeriod, "container_spec_cpu_period", "Period of the CPU quota, microseconds."},
		{&c.specQuota, "container_spec_cpu_quota", "CPU time in a period, microseconds."},
		{&c.specMemory, "container_spec_memory_limit_bytes", "Limit of memory; 0 is none."},
		{&c.specLow, "container_spec_memory_reservation_limit_bytes", "Memory that is reserved."},
		{&c.specSwap, "container_spec_memory_swap_limit_bytes", "Limit of swap, on cgroup v1 of memory and swap together; 0 is none."},
	} {
		add(n.dst, gauge(n.name, n.help, whoLabels...))
	}
	for _, n := range []named{
		{&c.rxBytes, "container_network_receive_bytes_total", "Bytes received."},
		{&c.txBytes, "container_network_transmit_bytes_total", "Bytes sent."},
		{&c.rxErrors, "container_network_receive_errors_total", "Errors when receiving."},
		{&c.txErrors, "container_network_transmit_errors_total", "Errors when sending."},
		{&c.rxPackets, "container_network_receive_packets_total", "Packets received."},
		{&c.txPackets, "container_network_transmit_packets_total", "Packets sent."},
		{&c.rxDropped, "container_network_receive_packets_dropped_total", "Packets dropped when receiving."},
		{&c.txDropped, "container_network_transmit_packets_dropped_total", "Packets dropped when sending."},
	} {
		add(n.dst, counter(n.name, n.help, with("interface")...))
	}
	for _, n := range []named{
		{&c.fsUsed, "container_fs_usage_bytes", "Bytes used of a file system."},
		{&c.fsLimit, "container_fs_limit_bytes", "Size of a file system in bytes."},
		{&c.inodes, "container_fs_inodes_total", "Inodes of a file system."},
		{&c.inodesFree, "container_fs_inodes_free", "Inodes that are free."},
		{&c.inFlight, "container_fs_io_current", "Requests in flight on a device."},
	} {
		add(n.dst, gauge(n.name, n.help, with("device")...))
	}
	for _, n := range []named{
		{&c.reads, "container_fs_reads_total", "Reads from a device."},
		{&c.writes, "container_fs_writes_total", "Writes to a device."},
		{&c.readBytes, "container_fs_reads_bytes_total", "Bytes read from a device."},
		{&c.writtenBytes, "container_fs_writes_bytes_total", "Bytes written to a device."},
		{&c.readsMerged, "container_fs_reads_merged_total", "Merged reads from a device."},
		{&c.writesMerged, "container_fs_writes_merged_total", "Merged writes to a device."},
		{&c.sectorsRead, "container_fs_sector_reads_total", "Sectors read from a device."},
		{&c.sectorsWritten, "container_fs_sector_writes_total", "Sectors written to a device."},
		{&c.readTime, "container_fs_read_seconds_total", "Time that reads of a device took."},
		{&c.writeTime, "container_fs_write_seconds_total", "Time that writes to a device took."},
		{&c.busy, "container_fs_io_time_seconds_total", "Time for which a device was busy."},
		{&c.busyWeighted, "container_fs_io_time_weighted_seconds_total", "Time for which a device was busy, times its requests."},
	} {
		add(n.dst, counter(n.name, n.help, with("device")...))
	}
	add(&c.blkio, counter("container_blkio_device_usage_total", "Bytes read from a device and written to it.", with("device", "major", "minor", "operation")...))
	add(&c.ulimits, gauge("container_ulimits_soft", "Soft limits of the first process.", with("ulimit")...))
	add(&c.cpu, counter("container_cpu_usage_seconds_total", "CPU time.", with("cpu")...))
	add(&c.faults, counter("container_memory_failures_total", "Page faults.", with("failure_type", "scope")...))
	machine := []string{"machine_id", "system_uuid", "boot_id"}
	for _, n := range []named{
		{&c.cores, "machine_cpu_cores", "CPUs of the machine."},
		{&c.physical, "machine_cpu_physical_cores", "Cores of the machine, however many threads each has."},
		{&c.sockets, "machine_cpu_sockets", "Sockets of the machine."},
		{&c.machineMemory, "machine_memory_bytes", "Memory of the machine."},
		{&c.machineSwap, "machine_swap_bytes", "Swap of the machine."},
	} {
		add(n.dst, gauge(n.name, n.help, machine...))
	}
	add(&c.failed, gauge("container_scrape_error", "1 if the stats could not be read."))
	return c
}
