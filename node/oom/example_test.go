package oom_test

import (
	"fmt"

	"github.com/nodewright/nodewright/node/oom"
)

// The kernel's messages become kills.
func ExampleAssembler() {
	var a oom.Assembler
	for _, line := range []string{
		"java invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=968",
		"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c0ffee,mems_allowed=0," +
			"oom_memcg=/kubepods/pod1234,task_memcg=/kubepods/pod1234/c0ffee,task=java,pid=4321,uid=0",
		"Memory cgroup out of memory: Killed process 4321 (java) total-vm:106496kB, anon-rss:102400kB, file-rss:4kB, shmem-rss:0kB",
	} {
		if k, ok := a.Add(line); ok {
			fmt.Printf("pod %s, container %s lost %s (%d MiB); the limit was of %s\n", k.PodUID, k.ContainerID, k.Process, k.AnonRSS>>20, k.Limit)
		}
	}
	// Output: pod 1234, container c0ffee lost java (100 MiB); the limit was of /kubepods/pod1234
}
