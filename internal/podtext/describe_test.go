package podtext

import (
	"bytes"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestDescribe(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	start := metav1.NewTime(now.Add(-time.Hour))
	p := testPod("default", "web-edge")
	p.Labels = map[string]string{"tier": "front", "app": "web"}
	p.Spec.InitContainers = []v1.Container{{Name: "prepare", Image: "img:0"}}
	p.Status.StartTime, p.Status.QOSClass = &start, v1.PodQOSBurstable
	p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "prepare", ContainerID: "containerd://1", State: ended(0, "Completed")}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "c", ContainerID: "containerd://2", RestartCount: 3,
		State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: "first\nsecond\t\x1b[31mred"}},
	}}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "c"}}
	events := []v1.Event{{Type: "Warning", Reason: "BackOff", Count: 4, Message: "back-off\nrestarting", LastTimestamp: metav1.NewTime(now.Add(-70 * time.Second))}}

	var b bytes.Buffer
	if err := Describe(&b, p, []string{"does not run: c has ended", "its last words: x"}, events, now); err != nil {
		t.Fatal(err)
	}
	want := `
Name:         web-edge
Namespace:    default
UID:          uid-1
Node:         edge
Start time:   Wed, 02 Jan 2030 02:04:05 +0000
Labels:       app=web, tier=front
Annotations:  <none>
Status:       CrashLoopBackOff
Why:          it does not run: c has ended
              its last words: x
IP:           10.0.0.3
QoS class:    Burstable
Init containers:
  prepare:
    Image:          img:0
    Container ID:   containerd://1
    State:          Terminated (Completed) exit code 0
    Ready:          false
    Restart count:  0
Containers:
  c:
    Image:          img:1
    Container ID:   containerd://2
    State:          Waiting (CrashLoopBackOff) back-off 40s
    Last state:     Terminated (Error) exit code 2 first second [31mred
    Ready:          false
    Restart count:  3
Conditions:
  Ready  False  ContainersNotReady  c
Volumes:  <none>
Events:
  Warning  BackOff  pod  70s ago (x4)  back-off restarting
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
}

func TestDescribeBare(t *testing.T) {
	p := testPod("default", "web")
	p.Status = v1.PodStatus{Message: "the node was low on\nmemory"}
	var b bytes.Buffer
	if err := Describe(&b, p, nil, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nStatus:       Pending\n", "\nMessage:      the node was low on memory\n", "\nIP:           <none>\n",
		"\n  c:\n    Image:  img:1\nConditions:  <none>\nVolumes:  <none>\nEvents:  <none>\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestDescribeStates(t *testing.T) {
	at := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	for _, tc := range []struct {
		state v1.ContainerState
		want  string
	}{
		{v1.ContainerState{}, "Waiting"},
		{waiting(""), "Waiting"},
		{waiting("ErrImagePull"), "Waiting (ErrImagePull)"},
		{ended(0, "Completed"), "Terminated (Completed) exit code 0"},
		{ended(9, ""), "Terminated exit code 9"},
		{v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}}, "Running since Wed, 02 Jan 2030 03:04:05 +0000"},
	} {
		if got := stateLine(tc.state); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// A pod with everything that kubectl's description of one has.
func TestDescribeSpec(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	yes, ten, five, always := true, int32(10), int64(5), v1.ContainerRestartPolicyAlways
	class, propagation := "gvisor", v1.MountPropagationHostToContainer
	size := resource.MustParse("1Gi")
	p := testPod("default", "web")
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "edge"}}
	p.Spec.Priority, p.Spec.PriorityClassName, p.Spec.RuntimeClassName, p.Spec.ServiceAccountName = &ten, "high", &class, "robot"
	p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	p.Spec.Tolerations = []v1.Toleration{{Key: "a", Value: "b", Effect: v1.TaintEffectNoSchedule}, {Operator: v1.TolerationOpExists, TolerationSeconds: &five}}
	p.Status.PodIPs = []v1.PodIP{{IP: "10.0.0.3"}, {IP: "fd00::3"}}
	p.Spec.InitContainers = []v1.Container{{Name: "side", Image: "img:0", RestartPolicy: &always}}
	c := &p.Spec.Containers[0]
	c.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 80, HostPort: 8080, HostIP: "127.0.0.1"}, {ContainerPort: 53, Protocol: v1.ProtocolUDP}}
	c.Command, c.Args = []string{"sh", "-c"}, []string{"echo\nred\x1b[31m"}
	c.Resources = v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("100m")}, Limits: v1.ResourceList{"cpu": resource.MustParse("1"), "memory": size}}
	c.LivenessProbe = &v1.Probe{PeriodSeconds: 10, ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}}}
	c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true", "x"}}}}
	c.StartupProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 9}}}
	c.EnvFrom = []v1.EnvFromSource{{Prefix: "P_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Optional: &yes}}}
	c.Env = []v1.EnvVar{
		{Name: "PLAIN", Value: "a b"},
		{Name: "SECRET", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "k", LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}},
		{Name: "FIELD", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
	}
	c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true, SubPath: "x", MountPropagation: &propagation}, {Name: "tmp", MountPath: "/tmp"}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "box"}}}
	p.Spec.Volumes = []v1.Volume{
		{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &size}}},
		{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "disk", ReadOnly: true}}},
		{Name: "all", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{}}, {ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "ca"}}}}}}},
		{Name: "odd", VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{}}},
	}
	at := metav1.NewTime(now.Add(-time.Minute))
	p.Status.ContainerStatuses[0].LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", StartedAt: at, FinishedAt: at}}
	events := []v1.Event{{Type: "Normal", Reason: "Started", Count: 1, LastTimestamp: at, InvolvedObject: v1.ObjectReference{FieldPath: "spec.containers{c}"}}}
	var b bytes.Buffer
	if err := Describe(&b, p, nil, events, now); err != nil {
		t.Fatal(err)
	}
	want := `
Name:             web
Namespace:        default
UID:              uid-1
Priority:         10
Priority class:   high
Runtime class:    gvisor
Service account:  robot
Node:             edge
Labels:           <none>
Annotations:      <none>
Status:           Running
IP:               10.0.0.3
IPs:              10.0.0.3, fd00::3
Owner:            Node/edge
QoS class:        
Node selector:    disk=ssd
Tolerations:      a=b:NoSchedule, op=Exists for 5s
Init containers:
  side:
    Image:           img:0
    Restart policy:  Always
Containers:
  c:
    Image:             img:1
    Container ID:      <none>
    State:             Running since Mon, 01 Jan 0001 00:00:00 +0000
    Last state:        Terminated (OOMKilled) exit code 137, from Wed, 02 Jan 2030 03:03:05 +0000 to Wed, 02 Jan 2030 03:03:05 +0000
    Ready:             true
    Restart count:     0
    Ports:             http 80/TCP (host 127.0.0.1:8080), 53/UDP
    Command:           sh -c
    Args:              echo red [31m
    Requests:          cpu=100m
    Limits:            cpu=1, memory=1Gi
    Liveness:          http://:http/healthz, delay 0s, timeout 0s, period 10s, success 0, failure 0
    Readiness:         exec true x, delay 0s, timeout 0s, period 0s, success 0, failure 0
    Startup:           grpc :9, delay 0s, timeout 0s, period 0s, success 0, failure 0
    Environment from:  Secret s (optional), with prefix P_
    Environment:
      PLAIN:   a b
      SECRET:  from key k of Secret s
      FIELD:   from field status.podIP
    Mounts:
      /data  from data (ro, path x, HostToContainer)
      /tmp   from tmp (rw)
Ephemeral containers:
  debug:
    Image:  box
Conditions:  <none>
Volumes:
  tmp:   emptyDir, medium Memory, limit 1Gi
  data:  claim disk (read-only)
  all:   projected: token for the API server, configMap ca
  odd:   type that this node does not mount
Events:
  Normal  Started  c  60s ago (x1)  
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
}
