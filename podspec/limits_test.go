package podspec

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withContainer is the input of one container, app, in the form that YAML would
// be slow to read.
func withContainer(t testing.TB, c v1.Container) Input {
	t.Helper()
	in := withData(input(t, "{enableServiceLinks: false, containers: [{name: app, image: i}]}"))
	c.Name, c.Image = "app", "i"
	in.Pod.Spec.Containers[0] = c
	return in
}

// doubling are variables each of which is its predecessor twice, from 540 bytes on.
func doubling(n int) []v1.EnvVar {
	vars := []v1.EnvVar{{Name: "V0", Value: strings.Repeat("x", 540)}}
	for i := 1; i < n; i++ {
		vars = append(vars, v1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: fmt.Sprintf("$(V%d)$(V%d)", i-1, i-1)})
	}
	return vars
}

func many(n int, f func(i int) v1.EnvVar) []v1.EnvVar {
	out := make([]v1.EnvVar, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// allocated returns the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// However a pod asks for more than a program can be given, it is that
// container's problem, and costs little more than the limit.
func TestExpansionIsBounded(t *testing.T) {
	const one, all = "131072", "2097152"
	half := strings.Repeat("x", 64<<10)
	for _, tc := range []struct {
		name string
		in   func(t *testing.T) Input
		want []string // in the error
	}{
		{"variables that double each other", func(t *testing.T) Input {
			return withContainer(t, v1.Container{Env: doubling(28)})
		}, []string{"spec.containers[0].env[8].value", `container "app"`, `variable "V8"`, one}},
		{"many variables of one", func(t *testing.T) Input {
			return withContainer(t, v1.Container{Env: append([]v1.EnvVar{{Name: "A", Value: half}}, many(1000, func(i int) v1.EnvVar {
				return v1.EnvVar{Name: fmt.Sprint("B", i), Value: "$(A)"}
			})...)})
		}, []string{"spec.containers[0].env[31].value", `container "app"`, `variable "B30"`, all}},
		{"many small variables", func(t *testing.T) Input {
			return withContainer(t, v1.Container{Env: many(300000, func(i int) v1.EnvVar { return v1.EnvVar{Name: fmt.Sprintf("%06d", i)} })})
		}, []string{`container "app"`, `variable "131072"`, all}},
		{"a long value", func(t *testing.T) Input {
			return withContainer(t, v1.Container{Env: []v1.EnvVar{{Name: "A", Value: half + half}}})
		}, []string{"env[0].value", `variable "A"`, one}},
		{"a large config map", func(t *testing.T) Input {
			in := withContainer(t, v1.Container{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "big"}}}}})
			in.ConfigMaps["big"] = &v1.ConfigMap{Data: map[string]string{}}
			for i := range 100 {
				in.ConfigMaps["big"].Data[fmt.Sprintf("K%03d", i)] = half
			}
			return in
		}, []string{"spec.containers[0].envFrom[0]", `container "app"`, `variable "K031"`, all}},
		{"a large key of a secret", func(t *testing.T) Input {
			in := withContainer(t, v1.Container{EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "big"}}}}})
			in.Secrets["big"] = &v1.Secret{Data: map[string][]byte{"K": make([]byte, 64<<20)}}
			return in
		}, []string{"spec.containers[0].envFrom[0]", `variable "K"`, one}},
		{"a large key of a secret by name", func(t *testing.T) Input {
			in := withContainer(t, v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{
				SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "big"}, Key: "K"}}}}})
			in.Secrets["big"] = &v1.Secret{Data: map[string][]byte{"K": make([]byte, 64<<20)}}
			return in
		}, []string{"spec.containers[0].env[0].valueFrom.secretKeyRef", `variable "A"`, one}},
		{"annotations", func(t *testing.T) Input {
			in := withContainer(t, v1.Container{Env: many(100, func(i int) v1.EnvVar {
				return v1.EnvVar{Name: fmt.Sprint("A", i), ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}}}
			})})
			in.Pod.Annotations = map[string]string{}
			for i := range 1000 {
				in.Pod.Annotations[fmt.Sprint(i)] = half
			}
			return in
		}, []string{"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath", "metadata.annotations", one}},
		{"one annotation", func(t *testing.T) Input {
			in := withContainer(t, v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['a']"}}}}})
			in.Pod.Annotations = map[string]string{"a": half + half}
			return in
		}, []string{"spec.containers[0].env[0]", `variable "A"`, one}},
		{"files", func(t *testing.T) Input {
			in := withContainer(t, v1.Container{Env: many(1000, func(i int) v1.EnvVar {
				return v1.EnvVar{Name: fmt.Sprint("A", i), ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: fmt.Sprint(i), Key: "K"}}}
			})})
			in.Volumes = map[string]string{"v": "/v"}
			content := []byte("K=''\n#" + half[6:])
			in.ReadFile = func(string, string) ([]byte, error) { return content, nil }
			return in
		}, []string{"spec.containers[0].env[33].valueFrom.fileKeyRef.path", all}},
		{"arguments of a long variable", func(t *testing.T) Input {
			return withContainer(t, v1.Container{Env: doubling(8), Args: []string{"a", strings.Repeat("$(V7)", 1000)}})
		}, []string{"spec.containers[0].args[1]", `container "app"`, one}},
		{"many arguments of one variable", func(t *testing.T) Input {
			in := withContainer(t, v1.Container{Env: doubling(8), Command: []string{"c"}})
			for range 1000 {
				in.Pod.Spec.Containers[0].Args = append(in.Pod.Spec.Containers[0].Args, "$(V7)")
			}
			return in
		}, []string{"spec.containers[0].args[30]", `container "app"`, all}},
		{"a long command", func(t *testing.T) Input {
			return withContainer(t, v1.Container{Command: []string{half + half}})
		}, []string{"spec.containers[0].command[0]", `container "app"`, one}},
		{"a path of a volume", func(t *testing.T) Input {
			in := withContainer(t, v1.Container{Env: doubling(8), VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v", SubPathExpr: strings.Repeat("$(V7)", 1000)}}})
			in.Volumes = map[string]string{"v": "/v"}
			return in
		}, []string{"spec.containers[0].volumeMounts[0].subPathExpr", `container "app"`, "4095"}},
		{"plugins", func(t *testing.T) Input {
			in := withContainer(t, v1.Container{})
			in.Attached = map[string]Attachment{"app": {Env: many(100, func(i int) v1.EnvVar { return v1.EnvVar{Name: fmt.Sprint("P", i), Value: half} })}}
			return in
		}, []string{"spec.containers[0].resources", `variable "P31"`, all}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in(t)
			var err error
			n := allocated(func() { _, err = Container(in, "app", ContainerOptions{}) })
			for _, want := range tc.want {
				if !strings.Contains(text(err), want) {
					t.Errorf("error = %v, want %q in it", clipTo(text(err), 500), want)
				}
			}
			if n > 64<<20 { // of which a small part is in use at any time
				t.Errorf("%d MiB were allocated", n>>20)
			}
			if len(text(err)) > 16<<10 {
				t.Errorf("the error has %d bytes", len(text(err)))
			}
		})
	}
}

// An environment of the largest allowed size is accepted.
func TestLargestEnvironment(t *testing.T) {
	value := strings.Repeat("x", maxString-len("A00=")-1)
	in := withContainer(t, v1.Container{Env: many(15, func(i int) v1.EnvVar { return v1.EnvVar{Name: fmt.Sprintf("A%02d", i), Value: value} })})
	in.Pod.Spec.Containers[0].Args = []string{value + "xxxx"}
	if c := compile(t, in, "app"); len(c.Envs) != 15 || len(c.Args[0]) != maxString-1 {
		t.Errorf("%d variables, %d bytes of arguments", len(c.Envs), len(c.Args[0]))
	}
	// A variable that is set again counts once.
	in = withContainer(t, v1.Container{Env: many(100, func(int) v1.EnvVar { return v1.EnvVar{Name: "A00", Value: value} })})
	if c := compile(t, in, "app"); len(c.Envs) != 1 {
		t.Errorf("%d variables", len(c.Envs))
	}
}

// A pod of ten thousand mistakes has a message that a status can hold.
func TestManyProblemsMakeAShortError(t *testing.T) {
	in := withContainer(t, v1.Container{Env: many(10000, func(i int) v1.EnvVar {
		return v1.EnvVar{Name: fmt.Sprint("A", i), ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: strings.Repeat("p", 1000)}}}
	})})
	_, err := Container(in, "app", ContainerOptions{})
	if s := text(err); len(s) > 16<<10 || !strings.HasSuffix(s, "; and 9990 more") {
		t.Errorf("the error has %d bytes and ends in %q", len(s), s[max(0, len(s)-50):])
	}
}

// For any references between variables, the result can be passed to execve, or there is an error.
func FuzzContainerStrings(f *testing.F) {
	f.Add("x", "$(A)$(A)", "$(B)$(B)", "$(C)", uint8(3))
	f.Add("$", "$$(A)", "$(", ")", uint8(200))
	f.Fuzz(func(t *testing.T, a, b, c, arg string, n uint8) {
		env := []v1.EnvVar{{Name: "A", Value: a}, {Name: "B", Value: b}, {Name: "C", Value: c}}
		for range n { // each round doubles, or more
			env = append(env, v1.EnvVar{Name: "A", Value: "$(A)$(B)$(C)"})
		}
		in := withContainer(t, v1.Container{Env: env, Command: []string{arg}, Args: []string{arg, "$(A)"},
			VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v", SubPathExpr: arg}}})
		in.Volumes = map[string]string{"v": "/v"}
		plan, err := Container(in, "app", ContainerOptions{})
		if plan == nil {
			t.Fatal(err)
		}
		bounded(t, plan.Config)
		if len(text(err)) > 16<<10 {
			t.Errorf("the error has %d bytes", len(text(err)))
		}
	})
}

// bounded holds what execve(2) does.
func bounded(t *testing.T, c *runtimeapi.ContainerConfig) {
	t.Helper()
	args, env := 0, 0
	for _, s := range append(append([]string{}, c.Command...), c.Args...) {
		args += len(s) + perString
		if len(s)+1 > maxString {
			t.Errorf("an argument has %d bytes", len(s))
		}
	}
	for _, kv := range c.Envs {
		n := len(kv.Key) + 1 + len(kv.Value)
		env += n + perString
		if n+1 > maxString {
			t.Errorf("a variable has %d bytes", n)
		}
	}
	for _, m := range c.Mounts {
		if len(m.HostPath) > maxPath+len("/v/") {
			t.Errorf("a path has %d bytes", len(m.HostPath))
		}
	}
	if args > maxStrings || env > maxStrings {
		t.Errorf("arguments have %d bytes, the environment %d", args, env)
	}
}
