package record_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/record"
)

const marker = "hunter2"

// fill sets every string below v to the marker, except names, images, policies and what else of a
// pod is recorded. It goes as deep as the types of the API.
func fill(v reflect.Value, field string, depth int) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.CanSet() && v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem(), field, depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fill(v.Field(i), f.Name, depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(marker))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), field, depth+1)
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String && v.Type().Elem().Kind() == reflect.String {
			m := reflect.MakeMap(v.Type())
			m.SetMapIndex(reflect.ValueOf(marker).Convert(v.Type().Key()), reflect.ValueOf(marker).Convert(v.Type().Elem()))
			v.Set(m)
		}
	case reflect.String:
		switch {
		case field == "Name", field == "Image", strings.HasSuffix(field, "Policy"), field == "Action", field == "Operator":
			v.SetString("plain")
		default:
			v.SetString(marker)
		}
	}
}

// Nothing of a pod is recorded but its names, images and policies, and where its probes go.
func TestNoSecretIsRecorded(t *testing.T) {
	pod := &v1.Pod{}
	fill(reflect.ValueOf(&pod.Spec).Elem(), "", 0)
	pod.Status = v1.PodStatus{
		Phase: "Running", Reason: "Reason of " + marker, Message: marker,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, Reason: "Reason of " + marker, Message: marker}},
	}
	pod.Annotations, pod.Labels = map[string]string{marker: marker}, map[string]string{marker: marker}
	pod.Namespace, pod.Name, pod.UID = "shop", "web", "uid"
	c := &pod.Spec.Containers[0]
	c.LivenessProbe.HTTPGet.Host, c.LivenessProbe.HTTPGet.Port = "", intstr.FromString("http")
	c.LivenessProbe.HTTPGet.Path = "/healthz?token=" + marker + "#" + marker
	c.LivenessProbe.Exec, c.Ports = nil, []v1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	command := *c.LivenessProbe
	command.Exec = &v1.ExecAction{Command: []string{marker}}
	code := int32(1)
	obs := &observed.Pod{Sandboxes: []observed.Sandbox{{ID: "s", State: observed.Running, Annotations: pod.Annotations}}}
	run := observed.Container{
		ID: "c", Name: c.Name, SandboxID: "s", State: observed.Exited, ExitCode: &code, Reason: "Error: " + marker, Message: marker, LogPath: marker,
		Labels: pod.Labels, Annotations: pod.Annotations, Image: "plain", StartedAt: time.Now(), FinishedAt: time.Now(),
	}
	obs.Containers = []observed.Container{run}
	_, decision := record.Decide(podlife.Knowledge{Pod: pod, Runtime: obs})
	err := podlife.WithReason("Failed: "+marker, errors.New("no such file or directory: "+marker))
	facts := []record.Fact{
		record.WantedOf("ADD", "file", pod), record.InstanceOf(&run, c), record.StatusOf(&pod.Status), record.ResizeOf(pod.Status.Conditions), record.SyncOf(err), decision,
		record.ProbeOf("c", "Liveness", false, record.Check{Probe: c.LivenessProbe, Container: c, IP: "10.1.2.3", Output: "HTTP probe failed with statuscode: 503"}),
		record.ProbeOf("c", "Liveness", false, record.Check{Probe: c.LivenessProbe, Container: c, IP: "10.1.2.3", Output: `malformed HTTP response "` + marker + `"`}),
		record.ProbeOf("c", "Liveness", false, record.Check{Probe: &command, Container: c, Output: marker + " 503"}),
	}
	for _, kind := range []podlife.Kind{podlife.Rejected, podlife.Waits, podlife.Shutdown, podlife.DeadlineExceeded, podlife.ConfigFailed, podlife.RunFailed, podlife.SandboxFailed, ""} {
		facts = append(facts, record.VerdictOf(podlife.Cause{Kind: kind, Reason: "Reason of " + marker, Message: marker}))
	}
	var entries []record.Entry
	for _, f := range facts {
		entries = append(entries, record.Entry{Pod: web, Container: c.Name, Fact: f})
	}
	var b bytes.Buffer
	if err := record.Write(&b, entries); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, marker) {
			t.Errorf("the marker is in %s", line)
		}
	}
	if !strings.Contains(b.String(), `"target":"10.1.2.3:8080/healthz"`) || !strings.Contains(b.String(), `"code":503`) {
		t.Errorf("no target or code of the probe in %s", b.String())
	}
}

func TestProbeOf(t *testing.T) {
	http := &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}
	tcp := &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: "db.example", Port: intstr.FromInt32(5432)}}}
	grpc := &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 9000}}}
	exec := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}}
	for _, tc := range []struct {
		name   string
		probe  *v1.Probe
		output string
		want   record.Probe
	}{
		{"status", http, "HTTP probe failed with statuscode: 503", record.Probe{How: "http", Target: "10.1.2.3:8080/healthz", Code: 503}},
		{"refused", http, `Get "http://10.1.2.3:8080/healthz": dial tcp 10.1.2.3:8080: connect: connection refused`, record.Probe{How: "http", Target: "10.1.2.3:8080/healthz", Error: "connection refused"}},
		{"tcp", tcp, "dial tcp: i/o timeout", record.Probe{How: "tcp", Target: "db.example:5432", Error: "timed out"}},
		{"grpc", grpc, "service unhealthy (responded with \"NOT_SERVING\")", record.Probe{How: "grpc", Target: "10.1.2.3:9000", Error: "not serving"}},
		{"command", exec, "it does not work: not found", record.Probe{How: "exec"}},
		{"slow command", exec, "command timed out after 1s: x", record.Probe{How: "exec", Error: "timed out"}},
	} {
		got := record.ProbeOf("", "", false, record.Check{Probe: tc.probe, IP: "10.1.2.3", Output: tc.output})
		if *got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, *got, tc.want)
		}
	}
}
