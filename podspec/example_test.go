package podspec_test

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podspec"
)

func examplePod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod", UID: "u1"},
		Spec: v1.PodSpec{
			Subdomain: "sites",
			Containers: []v1.Container{{
				Name: "nginx", Image: "nginx:1.29",
				Args: []string{"--color=$(COLOR)"},
				Env: []v1.EnvVar{{Name: "COLOR", ValueFrom: &v1.EnvVarSource{
					ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "theme"}, Key: "color"},
				}}},
				VolumeMounts: []v1.VolumeMount{{Name: "pages", MountPath: "/usr/share/nginx/html", ReadOnly: true}},
			}},
		},
	}
}

func ExampleContainer() {
	in := podspec.Input{
		Pod:        examplePod(),
		Node:       podspec.Node{Name: "node1", PodLogsDir: "/var/log/pods"},
		ConfigMaps: map[string]*v1.ConfigMap{"theme": {Data: map[string]string{"color": "blue"}}},
		Volumes:    map[string]string{"pages": "/srv/pages"},
		PodIPs:     []string{"10.1.0.7"},
		PodDir:     "/var/lib/agent/pods/u1",
	}
	plan, err := podspec.Container(in, "nginx", podspec.ContainerOptions{Image: podspec.ImageFacts{Ref: "sha256:0d17"}})
	if err != nil {
		panic(err)
	}
	fmt.Println(plan.Config.Image.Image, plan.Config.Args)
	for _, m := range plan.Config.Mounts {
		fmt.Println("mount", m.HostPath, "at", m.ContainerPath)
	}
	for _, d := range plan.Dirs {
		fmt.Println("make ", d.Path, d.Mode)
	}
	for _, f := range plan.Files {
		fmt.Println("write", f.Path, f.Mode)
	}
	// Output:
	// sha256:0d17 [--color=blue]
	// mount /srv/pages at /usr/share/nginx/html
	// mount /var/lib/agent/pods/u1/etc-hosts at /etc/hosts
	// make  /var/log/pods/prod_web_u1/nginx -rwxr-xr-x
	// write /var/lib/agent/pods/u1/etc-hosts -rw-r--r--
}

// A dry run reports all that is wrong with a pod, before anything is done for
// it.
func ExampleCompile() {
	compiled, err := podspec.Compile(podspec.Input{
		Pod:  examplePod(),
		Node: podspec.Node{ClusterDomain: "cluster.local", ClusterDNS: []string{"10.0.0.10"}},
	})
	fmt.Println(compiled.Sandbox.Hostname, compiled.Sandbox.DnsConfig.Searches)
	var problems podspec.Problems
	errors.As(err, &problems)
	for _, p := range problems {
		fmt.Println(p.Reason, p.Path)
		fmt.Println(" ", p.Detail)
	}
	// Output:
	// web [prod.svc.cluster.local svc.cluster.local cluster.local]
	// CreateContainerConfigError spec.containers[0].env[0].valueFrom.configMapKeyRef
	//   configmap "theme" not found
	// CreateContainerConfigError spec.containers[0].volumeMounts[0].name
	//   volume "pages" is not ready
}

func ExampleProblems() {
	_, err := podspec.Container(podspec.Input{Pod: examplePod()}, "nginx", podspec.ContainerOptions{})
	var p podspec.Problems
	if errors.As(err, &p) {
		fmt.Println(p.Reason(), len(p))
	}
	// Output: CreateContainerConfigError 2
}
