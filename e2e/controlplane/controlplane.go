package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Options configures a control plane. Program and Dir are required.
type Options struct {
	// Program is the path of the compiled program e2e/cmd/cluster.
	Program string
	// Dir is an empty directory for the files of the control plane.
	Dir string
	// APIServer and Controllers are additional flags of kube-apiserver and kube-controller-manager.
	APIServer, Controllers []string
	// Older is a directory with kube-apiserver, kube-controller-manager and kube-scheduler of
	// another release, which are used in place of those of Program. If Older is "", all programs
	// are those of Program.
	Older string
}

// ControlPlane is a running control plane. Only one goroutine may call its methods.
type ControlPlane struct {
	URL string

	opts         Options
	program, dir string
	pki          *pki
	port         int
	etcdPort     int
	peerPort     int
	admin        string
	http         *http.Client
	running      map[string]*process
}

// process is one program that was started.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// ServiceAddress is the address at which pods look for the API server. Nothing listens there
// without [ControlPlane.Service].
const ServiceAddress = "10.0.0.1:443"

// ready limits the wait until a program answers.
const ready = 3 * time.Minute

// Start creates keys and starts all programs. It returns when the API server is ready and has the
// service account that pods need.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	c := &ControlPlane{opts: o, program: o.Program, dir: o.Dir, running: map[string]*process{}}
	if err := c.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) begin(ctx context.Context) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	c.port, c.etcdPort = ports[0], ports[1]
	c.URL = fmt.Sprintf("https://127.0.0.1:%d", c.port)
	if c.pki, err = newPKI(c.dir); err != nil {
		return err
	}
	if err := errors.Join(
		c.pki.issue("apiserver", "kube-apiserver", nil, net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)),
		c.pki.issue("kubelet-client", "kube-apiserver-kubelet-client", []string{"system:masters"}),
		c.pki.issue("front-proxy-client", "front-proxy-client", nil),
	); err != nil {
		return err
	}
	if c.admin, err = c.Kubeconfig("admin", "admin", "system:masters"); err != nil {
		return err
	}
	if err := c.client(); err != nil {
		return err
	}
	c.peerPort = ports[2]
	if err := c.StartEtcd(); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.StartControllers(); err != nil {
		return err
	}
	return c.until(ctx, "the default service account", func() error {
		return c.Kubectl(ctx, "get", "serviceaccount", "default").Run()
	})
}

func (c *ControlPlane) etcd() string { return fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort) }

// EtcdDir returns the directory with etcd's data.
func (c *ControlPlane) EtcdDir() string { return filepath.Join(c.dir, "etcd") }

// StartEtcd starts etcd. It does not wait until etcd answers.
func (c *ControlPlane) StartEtcd() error {
	return c.start("etcd", "--data-dir", c.EtcdDir(), "--unsafe-no-fsync",
		"--listen-client-urls", c.etcd(), "--advertise-client-urls", c.etcd(),
		"--listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", c.peerPort), "--log-level", "warn")
}

// StartAPIServer starts the API server, and returns when it is ready.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	policy := filepath.Join(c.dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	if err := c.start("kube-apiserver", slices.Concat([]string{"--etcd-servers", c.etcd(), "--etcd-prefix", "/registry",
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(c.port), "--cert-dir", c.dir,
		"--tls-cert-file", c.pki.path("apiserver.crt"), "--tls-private-key-file", c.pki.path("apiserver.key"),
		"--client-ca-file", c.CAFile(), "--kubelet-client-certificate", c.pki.path("kubelet-client.crt"),
		"--kubelet-client-key", c.pki.path("kubelet-client.key"), "--kubelet-preferred-address-types", "InternalIP",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", c.pki.path("sa.pub"),
		"--service-account-signing-key-file", c.pki.path("sa.key"), "--service-cluster-ip-range", "10.0.0.0/24",
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--enable-bootstrap-token-auth",
		"--proxy-client-cert-file", c.pki.path("front-proxy-client.crt"), "--proxy-client-key-file", c.pki.path("front-proxy-client.key"),
		"--requestheader-client-ca-file", c.CAFile(), "--requestheader-allowed-names", "front-proxy-client", "--enable-aggregator-routing",
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group", "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"--endpoint-reconciler-type", "none", "--allow-privileged", "--profiling=false",
		"--shutdown-delay-duration", "0s", "--audit-policy-file", policy, "--audit-log-path", c.auditLog()}, c.opts.APIServer)...); err != nil {
		return err
	}
	return c.until(ctx, "the API server", func() error {
		res, err := c.http.Get(c.URL + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", res.Status, body)
		}
		return nil
	})
}

// StartControllers starts the controllers and the scheduler. It first ends those that are
// running.
func (c *ControlPlane) StartControllers() error {
	c.Kill("kube-scheduler")
	c.Kill("kube-controller-manager")
	if err := c.start("kube-controller-manager", slices.Concat([]string{"--kubeconfig", c.admin, "--secure-port", "0", "--leader-elect=false",
		"--service-account-private-key-file", c.pki.path("sa.key"), "--root-ca-file", c.CAFile(),
		"--cluster-signing-cert-file", c.pki.path("ca.crt"), "--cluster-signing-key-file", c.pki.path("ca.key"),
		"--use-service-account-credentials=false", "--node-monitor-grace-period", "40s"}, c.opts.Controllers)...); err != nil {
		return err
	}
	return c.start("kube-scheduler", "--kubeconfig", c.admin, "--secure-port", "0", "--leader-elect=false")
}

// Kubectl returns a command that runs kubectl as an administrator.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.program, slices.Concat([]string{"kubectl", "--kubeconfig", c.admin}, args)...)
}

// Kill ends a program with SIGKILL. To start the program again, call its own method, such as
// StartEtcd.
func (c *ControlPlane) Kill(name string) {
	if p := c.running[name]; p != nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
		delete(c.running, name)
	}
}

// Signal sends a signal to a program. SIGSTOP makes the program hang.
func (c *ControlPlane) Signal(name string, sig syscall.Signal) error {
	p := c.running[name]
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	return p.cmd.Process.Signal(sig)
}

// Log returns the log of a program.
func (c *ControlPlane) Log(name string) string {
	b, _ := os.ReadFile(filepath.Join(c.dir, name+".log"))
	return string(b)
}

// Stop kills all programs.
func (c *ControlPlane) Stop() error {
	for _, name := range []string{"kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"} {
		c.Kill(name)
	}
	return nil
}

func (c *ControlPlane) start(name string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(c.program, slices.Concat([]string{name}, args)...)
	if c.opts.Older != "" && name != "etcd" {
		cmd = exec.Command(filepath.Join(c.opts.Older, name), args...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	c.running[name] = p
	return nil
}

// until calls ask repeatedly until it returns no error. what describes the condition, for the
// error after a timeout.
func (c *ControlPlane) until(ctx context.Context, what string, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		for name, p := range c.running {
			select {
			case <-p.ended:
				return fmt.Errorf("%s has ended: %s", name, last(c.Log(name), 2000))
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// client creates the administrator's HTTP client.
func (c *ControlPlane) client() error {
	pair, err := tls.LoadX509KeyPair(c.pki.path("admin.crt"), c.pki.path("admin.key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(c.CAFile())
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c.http = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}}
	return nil
}

// freePorts returns n ports of the loopback interface on which no process listens.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
