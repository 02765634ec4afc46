package spaces

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func newSpaces(t *testing.T) *Spaces {
	t.Helper()
	plugintest.RequireMounts(t)
	probe := exec.Command("/bin/true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if err := probe.Run(); err != nil {
		t.Skip("needs user namespaces, which nobody has in a chroot: ", err)
	}
	s, err := New(Config{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ids, err := s.List()
		if err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			if err := s.Remove(context.Background(), id); err != nil {
				t.Error(err)
			}
		}
		for _, dir := range []string{nsDir, shmDir, sysDir} {
			_ = unix.Unmount(filepath.Join(s.cfg.StateDir, dir), unix.MNT_DETACH)
		}
	})
	return s
}

func one(host uint32) []*runtimeapi.IDMapping {
	return []*runtimeapi.IDMapping{{HostId: host, Length: 65536}}
}

// in reads a file in a sandbox's namespaces.
func (s *Spaces) in(t *testing.T, id string, flags int, network, path string) string {
	t.Helper()
	var b []byte
	err := s.within(id, flags, network, func() (err error) {
		b, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(b))
}

func TestSpacesComeAndGo(t *testing.T) {
	for _, user := range []*Mappings{nil, {UIDs: one(200000), GIDs: one(300000)}} {
		t.Run(fmt.Sprint("user ", user != nil), func(t *testing.T) {
			s := newSpaces(t)
			r := Request{ID: "ab12", IPC: true, UTS: true, User: user, Hostname: "pod-a"}
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Make(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if now, err := s.Look(r.ID); err != nil || now != p || p.IPC == "" || p.UTS == "" || (p.User == "") != (user == nil) {
				t.Errorf("Look = %+v, %v; Make = %+v", now, err, p)
			}
			if got := s.in(t, r.ID, unix.CLONE_NEWUTS, "", "/proc/sys/kernel/hostname"); got != "pod-a" {
				t.Errorf("host name inside: %q", got)
			}
			if got, _ := os.Hostname(); got != host {
				t.Errorf("host name outside: %q; want %q", got, host)
			}
			var st unix.Stat_t
			var on unix.Statfs_t
			if err := unix.Stat(p.Shm, &st); err != nil || st.Mode&0o7777 != 0o1777 {
				t.Errorf("shm: mode %o, %v", st.Mode, err)
			}
			if err := unix.Statfs(p.Shm, &on); err != nil || on.Blocks*uint64(on.Bsize) != DefaultShmSize || on.Flags&unix.ST_NOEXEC == 0 {
				t.Errorf("shm: %+v, %v", on, err)
			}
			if user != nil {
				if st.Uid != 200000 || st.Gid != 300000 {
					t.Errorf("shm is %d:%d's", st.Uid, st.Gid)
				}
				owner, err := s.OpenUser(r.ID)
				if err != nil {
					t.Fatal(err)
				}
				defer owner.Close()
				ipc, err := nspin.OpenPinned(p.IPC, unix.CLONE_NEWIPC)
				if err != nil {
					t.Fatal(err)
				}
				defer ipc.Close()
				fd, err := nspin.Control(ipc, func(fd int) (int, error) { return unix.IoctlRetInt(fd, unix.NS_GET_USERNS) })
				if err != nil {
					t.Fatal(err)
				}
				its := os.NewFile(uintptr(fd), "owner")
				defer its.Close()
				a, _ := owner.Stat()
				b, _ := its.Stat()
				if !os.SameFile(a, b) {
					t.Error("the IPC namespace does not belong to the user namespace")
				}
			} else if _, err := s.OpenUser(r.ID); !os.IsNotExist(err) {
				t.Errorf("OpenUser: %v", err)
			}
			// Again: the same ones stay.
			before, _ := nspin.Look(p.IPC, unix.CLONE_NEWIPC)
			if again, err := s.Make(t.Context(), r); err != nil || again != p {
				t.Errorf("Make again = %+v, %v", again, err)
			}
			if after, _ := nspin.Look(p.IPC, unix.CLONE_NEWIPC); after != before {
				t.Errorf("the second Make made another one: %v, %v", before, after)
			}
			if ids, err := s.List(); err != nil || !slices.Equal(ids, []string{"ab12"}) {
				t.Errorf("List = %q, %v", ids, err)
			}
			for range 2 {
				if err := s.Remove(t.Context(), r.ID); err != nil {
					t.Error(err)
				}
			}
			if ids, err := s.List(); err != nil || len(ids) != 0 {
				t.Errorf("List = %q, %v", ids, err)
			}
		})
	}
}

func TestHostsNamespacesAreLeftAlone(t *testing.T) {
	s := newSpaces(t)
	p, err := s.Make(t.Context(), Request{ID: "a", Hostname: "x"})
	if err != nil || p != (Paths{Shm: HostShm}) {
		t.Errorf("Make = %+v, %v", p, err)
	}
	p, err = s.Make(t.Context(), Request{ID: "b", UTS: true, Hostname: "x"})
	if err != nil || p.Shm != HostShm || p.IPC != "" || p.UTS == "" {
		t.Errorf("Make = %+v, %v", p, err)
	}
}

// Whatever a crash left of a sandbox is made anew, and can be removed.
func TestLeftoversOfACrash(t *testing.T) {
	s := newSpaces(t)
	r := Request{ID: "a", IPC: true, UTS: true, Hostname: "x"}
	for name, crash := range map[string]func() error{
		"an empty file":     func() error { return nspin.MakePoint(s.path("a", ipcSuffix)) },
		"one of two":        func() error { return nspin.Remove(s.path("a", utsSuffix), unix.CLONE_NEWUTS, 0) },
		"a directory":       func() error { return os.Mkdir(s.shm("a"), 0o700) },
		"two tmpfs":         func() error { return unix.Mount("x", s.shm("a"), "tmpfs", 0, "") },
		"shm alone is gone": func() error { return unix.Unmount(s.shm("a"), unix.MNT_DETACH) },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.Make(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "an ") || strings.HasPrefix(name, "a ") {
				if err := s.Remove(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			if err := crash(); err != nil {
				t.Fatal(err)
			}
			p, err := s.Make(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if now, err := s.Look("a"); err != nil || now != p {
				t.Errorf("Look = %+v, %v; want %+v", now, err, p)
			}
			if err := s.Remove(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			if ids, _ := s.List(); len(ids) != 0 {
				t.Errorf("left: %q", ids)
			}
		})
	}
}

func TestForeignThingsStay(t *testing.T) {
	s := newSpaces(t)
	if _, err := s.Make(t.Context(), Request{ID: "a", UTS: true}); err != nil {
		t.Fatal(err)
	}
	path := s.path("b", ipcSuffix)
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Make(t.Context(), Request{ID: "b", IPC: true}); err == nil {
		t.Error("Make took what is not a namespace")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "x" {
		t.Errorf("it was touched: %q, %v", b, err)
	}
	_ = os.Remove(path)
}

func TestBadRequests(t *testing.T) {
	s := newSpaces(t)
	for _, r := range []Request{
		{}, {ID: "../x"}, {ID: "a/b"}, {ID: "a.ipc"}, {ID: strings.Repeat("a", 200)},
		{ID: "a", UTS: true, Hostname: strings.Repeat("x", 65)},
		{ID: "a", User: &Mappings{}},
		{ID: "a", IPC: true, User: &Mappings{UIDs: one(1 << 31), GIDs: []*runtimeapi.IDMapping{{HostId: 1, Length: 0}}}},
	} {
		if p, err := s.Make(t.Context(), r); err == nil {
			t.Errorf("Make(%+v) = %+v", r, p)
		}
	}
	if ids, err := s.List(); err != nil || len(ids) != 0 {
		t.Errorf("left: %q, %v", ids, err)
	}
}

func TestSysctlsAreSetInside(t *testing.T) {
	for _, user := range []*Mappings{nil, {UIDs: one(200000), GIDs: one(200000)}} {
		s := newSpaces(t)
		if _, err := s.Make(t.Context(), Request{ID: "a", IPC: true, UTS: true, User: user}); err != nil {
			t.Fatal(err)
		}
		network := filepath.Join(t.TempDir(), "net")
		makeNet(t, s, network, user != nil)
		before, _ := os.ReadFile("/proc/sys/kernel/shm_rmid_forced")
		err := s.SetSysctls(t.Context(), "a", network, map[string]string{
			"kernel.shm_rmid_forced": "1", "net.ipv4.conf.all.arp_announce": "2", "fs.mqueue.msg_max": "77",
			"net/ipv4/ip_unprivileged_port_start": "80",
		})
		if err != nil {
			t.Fatal(err)
		}
		flags := unix.CLONE_NEWIPC | unix.CLONE_NEWNET
		for path, want := range map[string]string{
			"kernel/shm_rmid_forced": "1", "net/ipv4/conf/all/arp_announce": "2", "fs/mqueue/msg_max": "77",
			"net/ipv4/ip_unprivileged_port_start": "80",
		} {
			if got := s.in(t, "a", flags, network, "/proc/sys/"+path); got != want {
				t.Errorf("%s = %q inside; want %q", path, got, want)
			}
		}
		if user == nil {
			if got := s.in(t, "a", flags, network, "/proc/sys/net/ipv4/ping_group_range"); got != "0\t2147483647" {
				t.Errorf("ping_group_range = %q", got)
			}
		}
		if after, _ := os.ReadFile("/proc/sys/kernel/shm_rmid_forced"); string(after) != string(before) {
			t.Errorf("the host's changed from %q to %q", before, after)
		}
		for name, value := range map[string]string{"net.ipv4.no_such": "1", "net.ipv4.ip_forward": "x", "net.ipv4": "1"} {
			err := s.SetSysctls(t.Context(), "a", network, map[string]string{name: value})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), name) {
				t.Errorf("sysctl %s=%s: %v", name, value, err)
			}
		}
	}
}

// The file system of a network's sysfs is as its first mount is: one that is held stays
// writable whoever else mounts it.
func TestSysStaysWritable(t *testing.T) {
	for _, user := range []*Mappings{nil, {UIDs: one(200000), GIDs: one(200000)}} {
		s := newSpaces(t)
		if _, err := s.Make(t.Context(), Request{ID: "a", UTS: true, User: user}); err != nil {
			t.Fatal(err)
		}
		network, at := filepath.Join(t.TempDir(), "net"), t.TempDir()
		makeNet(t, s, network, user != nil)
		writable := func() (writable bool) {
			err := s.within("a", unix.CLONE_NEWNET, network, func() error {
				readOnly, further := filepath.Join(at, "ro"), filepath.Join(at, "rw")
				for dir, flags := range map[string]uintptr{readOnly: unix.MS_RDONLY, further: 0} {
					if err := os.MkdirAll(dir, 0o700); err != nil {
						return err
					}
					defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
					if dir == further { // after the other one
						continue
					}
					if err := unix.Mount("sysfs", dir, "sysfs", flags, ""); err != nil {
						return err
					}
				}
				if err := unix.Mount("sysfs", further, "sysfs", 0, ""); err != nil {
					return err
				}
				writable = os.WriteFile(filepath.Join(further, "class/net/lo/tx_queue_len"), []byte("1000"), 0) == nil
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return writable
		}
		if writable() {
			t.Error("a read-only mount does not make the file system read-only: nothing has to be held")
		}
		for range 2 {
			if err := s.HoldSys(t.Context(), "a", network); err != nil {
				t.Fatal(err)
			}
		}
		if !writable() {
			t.Error("it is read-only though it is held")
		}
		if err := s.Remove(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if ids, err := s.List(); err != nil || len(ids) > 0 {
			t.Errorf("left: %q, %v", ids, err)
		}
	}
}

// makeNet pins a network namespace.
func makeNet(t *testing.T, s *Spaces, path string, owned bool) {
	t.Helper()
	if err := nspin.MakePoint(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	var owner *os.File
	if owned {
		var err error
		if owner, err = s.OpenUser("a"); err != nil {
			t.Fatal(err)
		}
		defer owner.Close()
	}
	c, err := nspin.StartChild(t.Context(), owner, unix.CLONE_NEWNET)
	if err != nil {
		t.Fatal(err)
	}
	defer c.End()
	f, err := c.Open("net")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := nspin.Bind(f, path); err != nil {
		t.Fatal(err)
	}
}

// No thread of the program stays in a namespace of a pod.
func TestThreadsComeBack(t *testing.T) {
	s := newSpaces(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			id := fmt.Sprint("a", i%4) // and some at the same time
			r := Request{ID: id, IPC: true, UTS: true, Hostname: "x"}
			if i%2 == 0 {
				r.User = &Mappings{UIDs: one(200000), GIDs: one(200000)}
			}
			_, err := s.Make(t.Context(), r)
			if err == nil {
				err = s.SetSysctls(t.Context(), id, "", map[string]string{"kernel.sem": "1 2 3 4"})
			}
			if rmErr := s.Remove(t.Context(), id); err == nil && rmErr != nil {
				err = rmErr
			}
			// A neighbour of the same ID may have removed it in between.
			if err != nil && !os.IsNotExist(err) && status.Code(err) != codes.InvalidArgument {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"ipc", "uts", "user", "net"} {
		home, _ := os.Readlink("/proc/self/ns/" + kind)
		for _, th := range threads {
			at, err := os.Readlink("/proc/self/task/" + th.Name() + "/ns/" + kind)
			if err == nil && at != home {
				t.Errorf("thread %s is in %s, not in %s", th.Name(), at, home)
			}
		}
	}
}
