package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// initiator skips a test where there is no iSCSI initiator: it takes Linux' module
// iscsi_tcp, which the machine of make test-vm has, open-iscsi, tgt and udev.
func initiator(t *testing.T) {
	t.Helper()
	plugintest.RequireMounts(t)
	if _, err := os.Stat("/sys/class/iscsi_transport/tcp"); err != nil {
		t.Skip("needs the kernel's iscsi_tcp: ", err)
	}
	for _, program := range []string{"iscsiadm", "iscsid", "tgtd", "tgtadm", "udevadm", udevd} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs open-iscsi, tgt and udev: ", err)
		}
	}
}

const (
	udevd   = "/lib/systemd/systemd-udevd"
	started = 2 * time.Minute // a machine may be slow
)

// daemon runs a program until the test ends.
func daemon(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if b, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s said: %.2048s", program, b)
		}
		_ = log.Close()
	})
}

func ran(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(started); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", started, what)
		}
	}
}

// serve starts the initiator's daemons, and a target with two disks that wants a
// password.
func serve(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll("/run/tgtd", 0o755))
	must(t, os.MkdirAll("/run/lock/iscsi", 0o755))
	daemon(t, udevd)
	daemon(t, "tgtd", "-f", "--iscsi", "portal=127.0.0.1:3260")
	daemon(t, "iscsid", "-f")
	until(t, "tgtd answers", func() bool { return exec.Command("tgtadm", "--op", "show", "--mode", "sys").Run() == nil })
	until(t, "the target's port is open", func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:3260", time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	tgt := func(args ...string) { ran(t, "tgtadm", append([]string{"--lld", "iscsi"}, args...)...) }
	tgt("--op", "new", "--mode", "target", "--tid", "1", "-T", target)
	for lun := 1; lun <= 2; lun++ {
		image := filepath.Join(t.TempDir(), "disk.img")
		must(t, os.WriteFile(image, nil, 0o600))
		must(t, os.Truncate(image, 32<<20))
		tgt("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", fmt.Sprint(lun), "-b", image)
	}
	tgt("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")
	tgt("--op", "new", "--mode", "account", "--user", "me", "--password", password)
	tgt("--op", "bind", "--mode", "account", "--tid", "1", "--user", "me")
}

// onMachine is a plugin on this machine, with a password.
func onMachine(t *testing.T, root, word string) *lunPlugin {
	t.Helper()
	p, err := newISCSI(iscsiConfig{Mounter: &mount.Kernel{}, Root: root, Source: secrets{"node.session.auth.username": []byte("me"), "node.session.auth.password": []byte(word)}})
	must(t, err)
	return p
}

// known returns the number of iSCSI sessions, and the records of iscsiadm.
func known(t *testing.T) (sessions int, records string) {
	t.Helper()
	dirs, err := filepath.Glob("/sys/class/iscsi_session/*")
	must(t, err)
	out, err := exec.Command("iscsiadm", "-m", "node").CombinedOutput()
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != noObject) {
		t.Fatal(err)
	}
	if err != nil {
		out = nil
	}
	return len(dirs), string(out)
}

// A target on this machine, with its kernel and its programs: a volume is formatted, mounted,
// found by another process and unmounted; its content stays. A second disk of the target uses the
// same session and is not affected by the removal of the first.
func TestRealTarget(t *testing.T) {
	initiator(t)
	serve(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	source := func(lun int32) v1.ISCSIPersistentVolumeSource {
		return v1.ISCSIPersistentVolumeSource{
			TargetPortal: "127.0.0.1", IQN: target, Lun: lun, SessionCHAPAuth: true, SecretRef: &v1.SecretReference{Name: "chap", Namespace: "ns"},
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	t.Run("wrong password", func(t *testing.T) {
		p := onMachine(t, root, "no-such-password")
		r := &rig{lunPlugin: p, root: root}
		v := r.volume(t, "x", source(1))
		if err := p.MountDevice(ctx, v); err == nil || strings.Contains(err.Error(), "no-such-password") {
			t.Errorf("got %v", err)
		}
		d, err := p.Device(v)
		must(t, err)
		must(t, p.UnmountDevice(ctx, d))
		if n, records := known(t); n != 0 || records != "" {
			t.Errorf("%d sessions, records %q are left", n, records)
		}
	})

	p := onMachine(t, root, password)
	r := &rig{lunPlugin: p, root: root}
	a, b := r.volume(t, "a", source(1)), r.volume(t, "b", source(2))
	for _, v := range []*volumemgr.Volume{a, b} {
		must(t, p.MountDevice(ctx, v))
		_, err := p.SetUp(ctx, v)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(v.Path, "file"), []byte("on "+v.Path), 0o600))
	}
	if n, _ := known(t); n != 1 {
		t.Errorf("%d sessions for two disks of one target", n)
	}
	// Another process knows the volume by its directory alone.
	p = onMachine(t, root, password)
	left := *a
	left.Spec, left.Pod, left.Found = nil, nil, true
	d, err := p.Device(&left)
	must(t, err)
	must(t, p.TearDown(ctx, &left))
	must(t, p.UnmountDevice(ctx, d))
	if n, _ := known(t); n != 1 {
		t.Errorf("%d sessions while a disk is in use", n)
	}
	must(t, os.WriteFile(filepath.Join(b.Path, "more"), []byte("b"), 0o600))

	// The first again: its file system is kept.
	must(t, p.MountDevice(ctx, a))
	_, err = p.SetUp(ctx, a)
	must(t, err)
	if got, err := os.ReadFile(filepath.Join(a.Path, "file")); err != nil || string(got) != "on "+a.Path {
		t.Errorf("%q (%v)", got, err)
	}
	for _, v := range []*volumemgr.Volume{b, a} {
		d, err := p.Device(v)
		must(t, err)
		must(t, p.TearDown(ctx, v))
		must(t, p.UnmountDevice(ctx, d))
	}
	if n, records := known(t); n != 0 || records != "" {
		t.Errorf("%d sessions, records %q are left", n, records)
	}
	if links, err := filepath.Glob("/dev/disk/by-path/*" + target + "*"); err != nil || len(links) > 0 {
		t.Errorf("disks %v are left (%v)", links, err)
	}

	t.Run("block", func(t *testing.T) {
		v := r.volume(t, "c", source(2))
		v.Spec.PersistentVolume.Spec.VolumeMode = new(v1.PersistentVolumeBlock)
		d, err := p.Device(v)
		must(t, err)
		v.DevicePath = d.Path
		must(t, p.MountDevice(ctx, v))
		device, err := p.MapDevice(ctx, v)
		must(t, err)
		if info, err := os.Stat(device); err != nil || info.Mode().Type() != fs.ModeDevice {
			t.Errorf("%s is %v (%v)", device, info, err)
		}
		must(t, p.UnmapDevice(ctx, v))
		must(t, p.UnmountDevice(ctx, d))
		if n, _ := known(t); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}
