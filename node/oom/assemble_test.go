package oom

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

const (
	uid  = "7e3c9d1a-2b4f-4a6e-9c8d-0123456789ab"
	cid  = "3f1c2e6a9b7d4f8e0a1b2c3d4e5f60718293a4b5c6d7e8f90123456789abcdef"
	slic = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7e3c9d1a_2b4f_4a6e_9c8d_0123456789ab.slice"
)

func TestAssembler(t *testing.T) {
	memcg := Kill{PID: 4321, Process: "stress", AnonRSS: 102400 * 1024, FileRSS: 4 * 1024, Count: 1,
		Cgroup: slic + "/cri-containerd-" + cid + ".scope", Limit: slic + "/cri-containerd-" + cid + ".scope",
		PodUID: uid, ContainerID: cid}
	for _, tt := range []struct {
		name string
		log  string
		want []Kill
	}{
		{"a container at its limit, Linux 6.1", `
stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=968
CPU: 1 PID: 4321 Comm: stress Not tainted 6.1.0-18-amd64 #1  Debian 6.1.76-1
memory: usage 102400kB, limit 102400kB, failcnt 59
Memory cgroup stats for ` + slic + `:
anon 104857600
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-` + cid + `.scope,mems_allowed=0,oom_memcg=` + memcg.Limit + `,task_memcg=` + memcg.Cgroup + `,task=stress,pid=4321,uid=0
Memory cgroup out of memory: Killed process 4321 (stress) total-vm:106496kB, anon-rss:102400kB, file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:248kB oom_score_adj:968
oom_reaper: reaped process 4321 (stress), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB`, []Kill{memcg}},
		{"the whole node, victim in a pod", `
kworker invoked oom-killer: gfp_mask=0x0(), order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/kubepods/besteffort/pod` + uid + `/` + cid + `,task=leak,pid=77,uid=1000
Out of memory: Killed process 77 (leak) total-vm:5000kB, anon-rss:4000kB, file-rss:0kB, shmem-rss:8kB, UID:1000 pgtables:20kB oom_score_adj:1000`,
			[]Kill{{PID: 77, Process: "leak", AnonRSS: 4000 * 1024, ShmemRSS: 8 * 1024, Count: 1, Node: true,
				Cgroup: "/kubepods/besteffort/pod" + uid + "/" + cid, PodUID: uid, ContainerID: cid}}},
		{"the pod's limit", `
a invoked oom-killer: x
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0-1,oom_memcg=/kubepods/pod` + uid + `,task_memcg=/kubepods/pod` + uid + `/` + cid + `,task=a,pid=5,uid=0
Memory cgroup out of memory: Killed process 5 (a) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB`,
			[]Kill{{PID: 5, Process: "a", AnonRSS: 1024, Count: 1, Limit: "/kubepods/pod" + uid,
				Cgroup: "/kubepods/pod" + uid + "/" + cid, PodUID: uid, ContainerID: cid}}},
		{"a group dies together, its first member told twice", `
a invoked oom-killer: x
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/g,task_memcg=/g,task=a,pid=5,uid=0
Memory cgroup out of memory: Killed process 5 (a) total-vm:1kB, anon-rss:1kB
Tasks in /g are going to be killed due to memory.oom.group set
Memory cgroup out of memory: Killed process 5 (a) total-vm:1kB, anon-rss:1kB
Memory cgroup out of memory: Killed process 6 (b) total-vm:1kB, anon-rss:1kB
Memory cgroup out of memory: OOM victim 7 (c) is already exiting. Skip killing the task`,
			[]Kill{{PID: 5, Process: "a", AnonRSS: 1024, Count: 1, Limit: "/g", Cgroup: "/g"},
				{PID: 6, Process: "b", AnonRSS: 1024, Count: 1, Limit: "/g", Cgroup: "/g"}}},
		{"Linux 4.19", `
b invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=0
Task in /kubepods/pod` + uid + `/` + cid + ` killed as a result of limit of /kubepods/pod` + uid + `
Memory cgroup out of memory: Kill process 9 (b) score 1000 or sacrifice child
Killed process 9 (b) total-vm:100kB, anon-rss:50kB, file-rss:0kB, shmem-rss:0kB`,
			[]Kill{{PID: 9, Process: "b", AnonRSS: 50 * 1024, Count: 1, Limit: "/kubepods/pod" + uid,
				Cgroup: "/kubepods/pod" + uid + "/" + cid, PodUID: uid, ContainerID: cid}}},
		{"Linux 4.19, the whole node", `
b invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=0
Out of memory: Kill process 9 (b) score 1000 or sacrifice child
Killed process 9 (b) total-vm:100kB, anon-rss:50kB, file-rss:0kB, shmem-rss:0kB`,
			[]Kill{{PID: 9, Process: "b", AnonRSS: 50 * 1024, Count: 1, Node: true}}},
		{"with a UID before the name", `
Out of memory: Killed process 12, UID 1000, (java) total-vm:7kB, anon-rss:5kB`,
			[]Kill{{PID: 12, Process: "java", AnonRSS: 5 * 1024, Count: 1, Node: true}}},
		{"a limit whose report was lost", `
Memory cgroup out of memory: Killed process 12 (x) total-vm:7kB, anon-rss:5kB`,
			[]Kill{{PID: 12, Process: "x", AnonRSS: 5 * 1024, Count: 1}}},
		{"a name made to mislead", `
x invoked oom-killer: x
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,b,mems_allowed=0,oom_memcg=/a,b,task_memcg=/a,b/c,task=,task_memcg=/q,pid=1,uid=0
Memory cgroup out of memory: Killed process 12 (),task= (x) total-vm:7kB, anon-rss:5kB`,
			[]Kill{{PID: 12, Process: "),task= (x", AnonRSS: 5 * 1024, Count: 1, Limit: "/a,b", Cgroup: "/a,b/c"}}},
		{"two, one after the other", `
a invoked oom-killer: x
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/a,task_memcg=/a,task=a,pid=1,uid=0
Memory cgroup out of memory: Killed process 1 (a) total-vm:1kB, anon-rss:1kB
eth0: link becomes ready
b invoked oom-killer: x
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=b,mems_allowed=0,oom_memcg=/b,task_memcg=/b,task=b,pid=1,uid=0
Memory cgroup out of memory: Killed process 1 (b) total-vm:1kB, anon-rss:1kB`,
			[]Kill{{PID: 1, Process: "a", AnonRSS: 1024, Count: 1, Limit: "/a", Cgroup: "/a"},
				{PID: 1, Process: "b", AnonRSS: 1024, Count: 1, Limit: "/b", Cgroup: "/b"}}},
		{"none of our business", `
audit: Killed process 12 (x) total-vm:7kB
Killed process twelve (x) total-vm:7kB
Killed process 12 without a name
Killed process 12 (x total-vm:7kB
Killed process -1 (x) total-vm:7kB`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a Assembler
			var got []Kill
			for line := range strings.Lines(tt.log) {
				if k, ok := a.Add(strings.TrimSuffix(line, "\n")); ok {
					got = append(got, k)
				}
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("kills:\n%+v\nwant:\n%+v", got, tt.want)
			}
		})
	}
}

func TestNodeEvent(t *testing.T) {
	const short, full = "System OOM encountered", "System OOM encountered, victim process: a b, pid: 7"
	for _, tt := range []struct {
		name string
		kill Kill
		want string // "" for no event
	}{
		{"node without memory", Kill{Node: true, PID: 7, Process: "a b", Cgroup: "/kubepods/x"}, full},
		{"victim in the root", Kill{Cgroup: "/", Limit: "/", PID: 7, Process: "a b"}, full},
		{"no pid", Kill{Cgroup: "/", Process: "a"}, short},
		{"no name", Kill{Cgroup: "/", PID: 7}, short},
		{"a container at its limit", Kill{Cgroup: "/kubepods/x", Limit: "/kubepods/x", PID: 7, Process: "a"}, ""},
		{"nobody knows where", Kill{PID: 7, Process: "a"}, ""},
	} {
		reason, message, ok := tt.kill.NodeEvent()
		if ok != (tt.want != "") || message != tt.want || ok && reason != "SystemOOM" {
			t.Errorf("%s: %q, %q, %v; want message %q", tt.name, reason, message, ok, tt.want)
		}
	}
}

func TestLocate(t *testing.T) {
	for _, tt := range []struct {
		path      string
		pod       types.UID
		container string
	}{
		{"", "", ""}, {"/", "", ""}, {"/system.slice/sshd.service", "", ""}, {"/kubepods", "", ""}, {"/kubepods/burstable", "", ""},
		{"/kubepods/pod" + uid, uid, ""},
		{"/kubepods/burstable/pod" + uid + "/" + cid, uid, cid},
		{"/kubepods/besteffort/pod" + uid + "/crio-" + cid, uid, "crio-" + cid}, // only scopes have a prefix
		{"/kubepods/besteffort/pod" + uid + "/" + cid + "/init.scope", uid, cid},
		{"/my/root/kubepods/pod" + uid + "/" + cid, uid, cid},
		{slic, uid, ""},
		{slic + "/cri-containerd-" + cid + ".scope", uid, cid},
		{slic + "/crio-" + cid + ".scope/nested/deep", uid, cid},
		{"/a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-pod1_2.slice/docker-x.scope", "1-2", "x"},
		{"/kubepods.slice/kubepods-podab12.slice/ab", "ab12", "ab"},
		{"/podman/pod" + uid + "/x", "", ""},
		{"/system.slice/kubepods-x.service/pod1", "", ""},
		{"/kubepods/pod/x", "", ""},
	} {
		if pod, c := locate(tt.path); pod != tt.pod || c != tt.container {
			t.Errorf("Locate(%q) = %q, %q; want %q, %q", tt.path, pod, c, tt.pod, tt.container)
		}
	}
}

func FuzzAssembler(f *testing.F) {
	f.Add("a invoked oom-killer: x\noom-kill:constraint=X,mems_allowed=0,oom_memcg=/a,task_memcg=/b,task=c,pid=1,uid=0\nKilled process 1 (c) total-vm:1kB, anon-rss:18446744073709551615kB")
	f.Add("Task in /a killed as a result of limit of /b\nKilled process 1, UID 2, (c))")
	f.Fuzz(func(t *testing.T, log string) {
		var a Assembler
		for line := range strings.Lines(log) {
			if k, ok := a.Add(strings.TrimSuffix(line, "\n")); ok && (k.PID <= 0 || k.Count != 1 || k.Node && k.Limit != "") {
				t.Errorf("%q made %+v", line, k)
			}
		}
	})
}
