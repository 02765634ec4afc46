package e2e_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// csiDriver builds e2e/csidriver and runs it until the test ends; it returns
// its socket.
func csiDriver(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	bin := filepath.Join(dir, "csidriver")
	if err := testprogram.Compile(t.Context(), ".", bin, "./csidriver"); err != nil {
		t.Fatal(err)
	}
	var log testprogram.Output
	cmd := exec.Command(bin, append([]string{
		"--node", "n1", "--state", filepath.Join(dir, "state"), "--dir", filepath.Join(dir, "plugins"), "--registry", "",
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the driver said last:\n%s", tail(log.String(), 60))
		}
	})
	socket := filepath.Join(dir, "plugins", "disk.example.com", "csi.sock")
	for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
		if time.Now().After(end) {
			t.Fatal("the driver has no socket: ", log.String())
		}
	}
}

// The example's driver passes the suite of all CSI drivers: with directories, with
// disks, and as block devices.
func TestCSISanity(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts and loop devices need root")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = containerdtest.UnmountBelow(dir) })
	// One suite for all: Ginkgo runs once in a program.
	for name, kind := range map[string]struct {
		access     string
		parameters map[string]string
	}{
		"directories":   {"mount", nil},
		"disks":         {"mount", map[string]string{"kind": "disk"}},
		"block devices": {"block", nil},
	} {
		config := sanity.NewTestConfig()
		config.TestVolumeSize, config.TestVolumeExpandSize = 16<<20, 24<<20
		config.TestVolumeAccessType, config.TestVolumeParameters = kind.access, kind.parameters
		config.TestVolumeMutableParameters = map[string]string{"tier": "gold"}
		config.TestNodeVolumeAttachLimit = true
		config.IdempotentCount = 3
		own := filepath.Join(dir, kind.access+kind.parameters["kind"])
		if err := os.Mkdir(own, 0o755); err != nil {
			t.Fatal(err)
		}
		config.TargetPath, config.StagingPath = filepath.Join(own, "target"), filepath.Join(own, "staging")
		config.Address = "unix:" + csiDriver(t, own, "--attach", "--max-volumes", "20")
		ginkgo.Describe(name, func() { sanity.GinkgoTest(&config) })
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.Timeout = 10 * time.Minute
	reporter.Succinct = true
	if !maySysResource(t) {
		const grows = "disks Node Service NodeExpandVolume should work if node-expand is called after node-publish"
		t.Logf("left out: %q: the kernel grows a mounted ext4 for CAP_SYS_RESOURCE alone", grows)
		suite.SkipStrings = append(suite.SkipStrings, grows)
	}
	ginkgo.GinkgoWriter.TeeTo(io.Discard)
	ginkgo.RunSpecs(t, "CSI sanity", suite, reporter)
}

// maySysResource reports whether this process has the capability CAP_SYS_RESOURCE.
func maySysResource(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
