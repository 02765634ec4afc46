package agent_test

import (
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/podmgr"
)

// Fit names the volumes that could not be mounted, and missing claims once.
func TestFitNamesVolumesThatCannotBeMounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		claim := func(name, volume string) *v1.PersistentVolumeClaim {
			return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: volume}}
		}
		n.Source.Set(podmgr.Snapshot{Claims: []*v1.PersistentVolumeClaim{claim("lost", "pv-gone"), claim("loose", "")}})
		a := n.Start()
		synctest.Wait()
		dir := t.TempDir()
		hostPath := func(path string, kind v1.HostPathType) v1.VolumeSource {
			return v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(dir, path), Type: &kind}}
		}
		ofClaim := func(name string) v1.VolumeSource {
			return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		}
		pod := agenttest.Pod("web", agenttest.Container("c"))
		for name, source := range map[string]v1.VolumeSource{
			"here": hostPath("", v1.HostPathDirectory), "made": hostPath("new", v1.HostPathDirectoryOrCreate), "gone": hostPath("no", v1.HostPathDirectory),
			"nothing": ofClaim("nothing"), "lost": ofClaim("lost"), "loose": ofClaim("loose"),
		} {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
		}
		var got []string
		for _, m := range a.Fit(pod).Missing {
			got = append(got, m.Kind+" "+m.Name+": "+strings.ReplaceAll(m.Message, dir, "DIR"))
		}
		slices.Sort(got)
		want := []string{
			"PersistentVolumeClaim default/nothing: PersistentVolumeClaim default/nothing is not here",
			`Volume gone: volume "gone": hostPath type check failed: DIR/no is not a directory: stat DIR/no: no such file or directory`,
			`Volume loose: volume "loose": claim default/loose is not bound: its spec.volumeName is empty`,
			`Volume lost: volume "lost": claim default/lost: persistent volume pv-gone: not found`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("missing\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Fit names the process that has a host port, of TCP and of UDP.
func TestFitNamesTakenHostPorts(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = udp.Close() }()
	port := func(a net.Addr) int32 {
		_, text, _ := net.SplitHostPort(a.String())
		n, _ := strconv.Atoi(text)
		return int32(n)
	}
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		n.Want()
		a := n.Start()
		pod := agenttest.Pod("web", agenttest.Container("c"))
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{
			{HostIP: "127.0.0.1", HostPort: port(tcp.Addr()), ContainerPort: 80, Protocol: v1.ProtocolTCP},
			{HostIP: "127.0.0.1", HostPort: port(udp.LocalAddr()), ContainerPort: 53, Protocol: v1.ProtocolUDP},
		}
		var got []string
		for _, m := range a.Fit(pod).Missing {
			got = append(got, m.Name)
			if !strings.Contains(m.Message, "is taken by this agent (process ") {
				t.Errorf("%s: %s", m.Name, m.Message)
			}
		}
		want := []string{strconv.Itoa(int(port(tcp.Addr()))) + "/TCP", strconv.Itoa(int(port(udp.LocalAddr()))) + "/UDP"}
		if !slices.Equal(got, want) {
			t.Errorf("taken %q, want %q", got, want)
		}
	})
}
