package containerdtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Options configure a private containerd. The zero value is valid.
type Options struct {
	Runtime    string            // ContainerdName or LocalCRI; the default is the environment's RUNTIME or, without that, ContainerdName
	Dir        string            // directory of all files; the default is a new one below the system's temporary directory
	BinDir     string            // directory of containerd, its shim, ctr, runc and CNI plugins; the default is the repository's build/bin
	Repository string            // root of this module; the default is found upwards from the working directory
	Archives   []string          // image archives to import; the default is those of sampleimage.Build
	Mirrors    map[string]string // URLs of mirrors to pull images from, by the registry's name
	Subnet     string            // subnet of the pods in CIDR notation; the default is a free /22 of 10.90.0.0/16
	Logf       func(format string, args ...any)

	lease *os.File // its lock reserves Subnet
}

func (o Options) withDefaults() (Options, error) {
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if o.Runtime == "" {
		o.Runtime = Name()
	}
	if o.Runtime != ContainerdName && o.Runtime != LocalCRI {
		return o, fmt.Errorf("runtime %q: want %s or %s", o.Runtime, ContainerdName, LocalCRI)
	}
	var err error
	if o.Repository == "" {
		if o.Repository, err = repository(); err != nil {
			return o, err
		}
	}
	if o.BinDir == "" {
		o.BinDir = filepath.Join(o.Repository, "build", "bin")
	}
	if o.BinDir, err = filepath.Abs(o.BinDir); err != nil {
		return o, err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "nwcd"); err == nil {
			err = os.Chmod(o.Dir, 0o711) // other users, such as those of containers, need to reach files in it
		}
	} else if o.Dir, err = filepath.Abs(o.Dir); err == nil {
		err = os.MkdirAll(o.Dir, 0o711)
	}
	if err != nil {
		return o, err
	}
	if o.Subnet == "" {
		o.Subnet, o.lease, err = freeSubnet()
	}
	return o, err
}

// bridge returns the name of the pods' bridge, which is derived from o.Dir.
func (o Options) bridge() string {
	sum := sha256.Sum256([]byte(o.Dir))
	return "nw" + hex.EncodeToString(sum[:5]) // an interface name has at most 15 bytes
}

func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/nodewright/nodewright\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not inside the nodewright repository")
		}
	}
}

// programs are the programs of a private containerd.
var programs = []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local", "loopback"}

// Missing returns an error if a private containerd cannot run here: the system is not Linux, the
// user is not root, or a program is missing.
func Missing(binDir string) error { return missing(ContainerdName, binDir) }

func missing(runtimeName, binDir string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("containers need Linux, this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("containers need root")
	}
	needed := programs
	if runtimeName == LocalCRI {
		needed = localPrograms
	}
	for _, p := range needed {
		if _, err := findProgram(binDir, p); err != nil {
			return fmt.Errorf("%s is neither in %s nor in PATH: run make tools", p, binDir)
		}
	}
	return nil
}

// findProgram returns the path of an executable file. It searches dir, the usual directories of
// CNI plugins, and PATH.
func findProgram(dir, name string) (string, error) {
	for _, d := range []string{dir, "/usr/lib/cni", "/opt/cni/bin"} {
		p := filepath.Join(d, name)
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return exec.LookPath(name)
}

// freeSubnet returns a subnet without addresses of this machine's interfaces, and a file
// whose lock reserves the subnet among processes until the file is closed. It fails if
// no subnet is free.
func freeSubnet() (string, *os.File, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", nil, err
	}
	leases := filepath.Join(os.TempDir(), "nodewright-subnets")
	if err := os.MkdirAll(leases, 0o700); err != nil {
		return "", nil, err
	}
next:
	for i := 0; i < 256; i += 4 {
		_, subnet, err := net.ParseCIDR(fmt.Sprintf("10.90.%d.0/22", i))
		if err != nil {
			return "", nil, err
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && (subnet.Contains(n.IP) || n.Contains(subnet.IP)) {
				continue next
			}
		}
		f, err := os.OpenFile(filepath.Join(leases, strconv.Itoa(i)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return "", nil, err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return subnet.String(), f, nil
		}
		if err := f.Close(); err != nil {
			return "", nil, err
		}
	}
	return "", nil, errors.New("no free subnet in 10.90.0.0/16")
}
