package critest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Containers tests what workloads find in the containers of a real runtime on this machine. Where
// the CRI says little, containerd's behaviour is expected. It needs root, and images of a
// [Registry].
func Containers(t *testing.T, s Subject) {
	for _, tc := range []struct {
		name string
		test func(*testing.T, Subject)
	}{
		{"absolute names in a layer", testAbsoluteNames},
		{"sysfs of a privileged container", testSysfs},
		{"images as volumes", testImageVolumes},
		{"host name", testHostname},
		{"missing source of a mount", testMissingSource},
		{"volumes of an image", testVolumes},
		{"names of an image", testImageNames},
		{"out of memory", testOutOfMemory},
		{"more memory", testMoreMemory},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, s) })
	}
}

// pulled pulls an image of the registry and returns its full name.
func (r *fixture) pulled(name string) string {
	r.t.Helper()
	name = r.Offer(name)
	if _, err := r.Images.PullImage(r.ctx(), &runtimeapi.ImageSpec{Image: name}, nil, r.conf); err != nil {
		r.t.Fatalf("PullImage: %v", err)
	}
	return name
}

// begin creates and starts a container with a configuration, and returns its ID.
func (r *fixture) begin(conf *runtimeapi.ContainerConfig) string {
	r.t.Helper()
	id, err := r.Runtime.CreateContainer(r.ctx(), r.sandbox, conf, r.conf)
	if err != nil {
		r.t.Fatalf("CreateContainer: %v", err)
	}
	r.start(id)
	return id
}

// outcome runs a container until it ends, and returns its output. An exit code other than 0 fails
// the test.
func (r *fixture) outcome(conf *runtimeapi.ContainerConfig) string {
	r.t.Helper()
	out, code := r.ended(r.begin(conf))
	if code != 0 {
		r.t.Errorf("%s ended with code %d: %s", conf.GetMetadata().GetName(), code, out)
	}
	return out
}

// ended waits for the end of a container. It returns the exit code and the output, without the
// prefixes of the log's lines.
func (r *fixture) ended(id string) (out string, code int32) {
	r.t.Helper()
	st := r.untilExited(id)
	b, err := os.ReadFile(st.GetLogPath())
	if err != nil {
		r.t.Fatal(err)
	}
	var said strings.Builder
	for line := range strings.Lines(string(b)) {
		head := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4) // time, stream, tag
		said.WriteString(head[len(head)-1])
		if len(head) < 4 || head[2] != "P" { // the next entry goes on with a partial line
			said.WriteByte('\n')
		}
	}
	return strings.TrimSuffix(said.String(), "\n"), st.GetExitCode()
}

func testAbsoluteNames(t *testing.T, s Subject) {
	r := newFixture(t, s)
	c := r.container("c", "cat", extraDir+"/data")
	c.Image.Image = r.pulled("absolute:1")
	if got := r.outcome(c); got != extraData {
		t.Errorf("the file has %q, want %q", got, extraData)
	}
}

// testSysfs tests that a privileged container can write to /sys, whichever containers of its pod
// started before it, and that other containers cannot.
func testSysfs(t *testing.T, s Subject) {
	for _, pid := range []runtimeapi.NamespaceMode{runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_POD} {
		t.Run(pid.String(), func(t *testing.T) {
			r := newFixture(t, s, func(c *runtimeapi.PodSandboxConfig) {
				c.Linux.SecurityContext.Privileged = true
				c.Linux.SecurityContext.NamespaceOptions.Pid = pid
			})
			write := func(name string, privileged bool, then ...string) *runtimeapi.ContainerConfig {
				c := r.container(name, append([]string{"write", "/sys/class/net/lo/tx_queue_len", "1000"}, then...)...)
				c.Linux.SecurityContext.NamespaceOptions.Pid = pid
				c.Linux.SecurityContext.Privileged = privileged
				return c
			}
			first := r.container("first", "sleep", "forever")
			first.Linux.SecurityContext.NamespaceOptions.Pid = pid
			r.begin(first)
			r.outcome(write("privileged", true))
			if out, code := r.ended(r.begin(write("ordinary", false))); code == 0 || !strings.Contains(out, "read-only") {
				t.Errorf("a container without privileges wrote to /sys: %d, %s", code, out)
			}
			r.outcome(write("again", true))
		})
	}
}

// podIDs is the ID mapping of a pod with a user namespace of its own.
var podIDs = []*runtimeapi.IDMapping{{HostId: 200000, ContainerId: 0, Length: 65536}}

func usersOfItsOwn(c *runtimeapi.PodSandboxConfig) {
	c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: podIDs, Gids: podIDs}
}

// testImageVolumes tests that an image can be mounted in every kind of pod and container.
func testImageVolumes(t *testing.T, s Subject) {
	for _, users := range []bool{false, true} {
		for _, privileged := range []bool{false, true} {
			name := map[bool]string{false: "users of the node", true: "users of its own"}[users] + map[bool]string{false: "", true: ", privileged"}[privileged]
			t.Run(name, func(t *testing.T) {
				r := newFixture(t, s, func(c *runtimeapi.PodSandboxConfig) {
					c.Linux.SecurityContext.Privileged = privileged
					if users {
						usersOfItsOwn(c)
					}
				})
				image, host := r.pulled("volume:1"), t.TempDir()
				if err := os.Chown(host, 0, 0); err != nil {
					t.Skip("needs root: ", err)
				}
				for d := host; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // the pod's root passes
					if err := os.Chmod(d, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				for _, readOnly := range []bool{false, true} {
					c := r.container(map[bool]string{false: "c", true: "readonly"}[readOnly], "stat", "/whole", "stat", "/whole"+extraDir+"/data", "stat", "/part", "cat", "/part/data", "stat", "/host")
					c.Linux.SecurityContext.Privileged, c.Linux.SecurityContext.ReadonlyRootfs = privileged, readOnly
					c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = r.conf.Linux.SecurityContext.NamespaceOptions.UsernsOptions
					c.Image.Image = image
					c.Mounts = []*runtimeapi.Mount{
						{ContainerPath: "/whole", Image: &runtimeapi.ImageSpec{Image: image}, Readonly: true},
						{ContainerPath: "/part", Image: &runtimeapi.ImageSpec{Image: image}, ImageSubPath: strings.TrimPrefix(extraDir, "/"), Readonly: true},
						{ContainerPath: "/host", HostPath: host},
					}
					if users {
						for _, m := range c.Mounts { // as the kubelet does with each
							m.UidMappings, m.GidMappings = podIDs, podIDs
						}
					}
					want := []string{"755 0 0", "444 0 0", "555 0 0", extraData + "755 0 0"}
					if got := strings.Split(r.outcome(c), "\n"); !slices.Equal(got, want) {
						t.Errorf("mode and owner of the mounts: %q, want %q", got, want)
					}
				}
			})
		}
	}
}

// testHostname tests that HOSTNAME equals /etc/hostname and the kernel's name, even if the caller
// gives no name.
func testHostname(t *testing.T, s Subject) {
	for name, change := range map[string]func(*runtimeapi.PodSandboxConfig){
		"given": func(c *runtimeapi.PodSandboxConfig) { c.Hostname = "named" },
		"none":  func(*runtimeapi.PodSandboxConfig) {},
		"node's network": func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, s, change)
			want, err := os.Hostname()
			if r.conf.GetHostname() != "" {
				want = r.conf.GetHostname()
			}
			if err != nil {
				t.Fatal(err)
			}
			c := r.container("c", "env", "HOSTNAME", "cat", "/proc/sys/kernel/hostname", "cat", "/etc/hostname")
			c.Linux.SecurityContext.NamespaceOptions.Network = r.conf.Linux.SecurityContext.NamespaceOptions.Network
			if got := strings.Split(r.outcome(c), "\n"); !slices.Equal(got, []string{want, want, want}) {
				t.Errorf("HOSTNAME, the kernel and the file say %q, want %q", got, want)
			}
		})
	}
}

// testMissingSource tests that a missing source of a mount is made, as a directory with its
// parents.
func testMissingSource(t *testing.T, s Subject) {
	r := newFixture(t, s)
	source := filepath.Join(t.TempDir(), "not", "there")
	c := r.container("c", "stat", "/made", "write", "/made/file", "x")
	c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/made", HostPath: source}}
	if got := r.outcome(c); got != "755 0 0" {
		t.Errorf("mode and owner of the directory: %s, want 755 0 0", got)
	}
	if _, err := os.Stat(filepath.Join(source, "file")); err != nil {
		t.Error(err)
	}
}

// testVolumes tests that a volume of the image exists and is writable, although no layer has it and
// the root file system is read-only. A mount at the same path takes precedence.
func testVolumes(t *testing.T, s Subject) {
	for name, change := range map[string]func(*runtimeapi.PodSandboxConfig){
		"users of the node": func(*runtimeapi.PodSandboxConfig) {}, "users of its own": usersOfItsOwn,
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, s, change)
			image := r.pulled("volumes:1")
			conf := func(name string, steps ...string) *runtimeapi.ContainerConfig {
				c := r.container(name, steps...)
				c.Image.Image = image
				c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = r.conf.Linux.SecurityContext.NamespaceOptions.UsernsOptions
				return c
			}
			write := []string{"stat", volumeDir, "write", volumeDir + "/file", "x"}
			if got := r.outcome(conf("writable", write...)); got != "755 0 0" {
				t.Errorf("mode and owner: %s, want 755 0 0", got)
			}
			readOnly := conf("readonly", write...)
			readOnly.Linux.SecurityContext.ReadonlyRootfs = true
			r.outcome(readOnly)
			readOnly = conf("root", "write", "/file", "x")
			readOnly.Linux.SecurityContext.ReadonlyRootfs = true
			if out, code := r.ended(r.begin(readOnly)); code == 0 {
				t.Errorf("the root of a read-only container was written to: %s", out)
			}
			if r.conf.Linux.SecurityContext.NamespaceOptions.UsernsOptions != nil {
				return
			}
			host := t.TempDir()
			mounted := conf("mounted", "write", volumeDir+"/file", "x")
			mounted.Mounts = []*runtimeapi.Mount{{ContainerPath: volumeDir, HostPath: host}}
			r.outcome(mounted)
			if _, err := os.Stat(filepath.Join(host, "file")); err != nil {
				t.Errorf("the volume hides what is mounted there: %v", err)
			}
		})
	}
}

// testImageNames tests the image names in a container's status: a digest that the registry has, and
// a tag, although the container was created by the image's ID, as the kubelet does it.
func testImageNames(t *testing.T, s Subject) {
	r := newFixture(t, s)
	name := r.pulled("names:1")
	st, err := r.Images.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: name}, false)
	if err != nil || len(st.GetImage().GetRepoDigests()) == 0 {
		t.Fatalf("%v, %v; want an image with a digest", st, err)
	}
	digest := st.GetImage().GetRepoDigests()[0]
	for i, asked := range []*runtimeapi.ImageSpec{{Image: name}, {Image: st.GetImage().GetId(), UserSpecifiedImage: name}} {
		c := r.container("c"+string(rune('0'+i)), "exit", "0")
		c.Image = asked
		got := r.status(r.begin(c))
		if got.GetImageRef() != digest || got.GetImageId() != st.GetImage().GetId() || got.GetImage().GetImage() != name {
			t.Errorf("created by %v: image_ref %q, image_id %q, image %q; want %q, %q, %q",
				asked, got.GetImageRef(), got.GetImageId(), got.GetImage().GetImage(), digest, st.GetImage().GetId(), name)
		}
	}
}

// testOutOfMemory tests that a container has the reason OOMKilled if it failed because the kernel
// killed its first process, a child or a grandchild for lack of memory.
func testOutOfMemory(t *testing.T, s Subject) {
	r := newFixture(t, s)
	for name, steps := range map[string][]string{"first": {"alloc", "200"}, "child": {"child", "alloc", "200"}, "grandchild": {"child", "child", "alloc", "200"}} {
		c := r.container(name, steps...)
		c.Linux.Resources.MemoryLimitInBytes = 64 << 20
		id := r.begin(c)
		if st := r.untilExited(id); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
			t.Errorf("%s: reason %q, exit code %d; want OOMKilled, 137", name, st.GetReason(), st.GetExitCode())
		}
	}
}

// testMoreMemory tests that the memory limit alone can be raised although swap is limited.
func testMoreMemory(t *testing.T, s Subject) {
	r := newFixture(t, s)
	c := r.container("c", "sleep", "forever")
	c.Linux.Resources.MemoryLimitInBytes, c.Linux.Resources.MemorySwapLimitInBytes = 64<<20, 64<<20
	id := r.begin(c)
	for _, limit := range []int64{128 << 20, 32 << 20, -1} {
		err := r.Runtime.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: limit}})
		if got := r.status(id).GetResources().GetLinux().GetMemoryLimitInBytes(); err != nil || got != limit {
			t.Errorf("update to %d: %v, shown as %d", limit, err, got)
		}
	}
}
