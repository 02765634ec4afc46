package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/testrun"
)

// A pod that waits for its image starts as soon as the image is loaded, however long its back-off is.
func TestLoadWakesPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const image = "localhost/app:1"
		o := virtual(t, "fileCheckFrequency: 1s\n")
		o.Config.ContainerRuntimeEndpoint = InProcess
		rt := critest.New()
		o.Runtime, o.Images = nil, nil
		o.LocalRuntime = func(context.Context, *Builder) (*LocalRuntime, error) {
			return &LocalRuntime{
				Runtime: rt, Images: rt, Run: func(ctx context.Context) error { <-ctx.Done(); return nil }, Network: "none",
				Import: func(context.Context, io.Reader, string) ([]string, error) {
					rt.AddImage(image)
					return []string{image}, nil
				},
			}, nil
		}
		n, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, n.Run)
		<-n.Ready()
		pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		pod.Spec.Containers = []v1.Container{{Name: "c", Image: image, ImagePullPolicy: v1.PullIfNotPresent}}
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.Config.StaticPodPath, "web.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		begun := func() bool {
			synctest.Wait()
			pods := n.Pods()
			return len(pods) == 1 && len(pods[0].Status.ContainerStatuses) == 1 && pods[0].Status.ContainerStatuses[0].ContainerID != ""
		}
		time.Sleep(time.Hour)
		if begun() {
			t.Error("the pod has begun without its image")
		}
		if _, err := n.LoadImages(t.Context(), strings.NewReader(""), ""); err != nil {
			t.Error(err)
		}
		if time.Sleep(2 * time.Second); !begun() {
			t.Error("the pod has not begun 2 s after its image is there")
		}
		stop()
	})
}

// Fit says which images are not here, and whether their registries have them.
func TestFitNamesMissingImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := virtual(t, "fileCheckFrequency: 1s\n")
		o.Config.ContainerRuntimeEndpoint = InProcess
		rt := critest.New()
		rt.AddImage("here:1")
		o.Runtime, o.Images = nil, nil
		o.LocalRuntime = func(context.Context, *Builder) (*LocalRuntime, error) {
			return &LocalRuntime{
				Runtime: rt, Images: rt, Run: func(ctx context.Context) error { <-ctx.Done(); return nil }, Network: "none",
				Offered: func(_ context.Context, image string, _ *runtimeapi.AuthConfig) error {
					if image == "offered:1" {
						return nil
					}
					return status.Error(codes.NotFound, "no such tag")
				},
			}, nil
		}
		n, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, n.Run)
		<-n.Ready()
		pod := &v1.Pod{}
		for i, image := range []string{"here:1", "never:1", "offered:1", "gone:1", "gone:1"} {
			c := v1.Container{Name: string(rune('a' + i)), Image: image, ImagePullPolicy: v1.PullIfNotPresent}
			if image == "never:1" {
				c.ImagePullPolicy = v1.PullNever
			}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
		var got []string
		for _, m := range n.Fit(pod).Missing {
			got = append(got, fmt.Sprintf("%s %t %s", m.Kind, m.Comes, m.Message))
		}
		want := []string{
			"Image false image never:1 is not here, and imagePullPolicy is Never",
			"Image true image offered:1 is not here: it is pulled when the pod starts; its registry has it",
			"Image false image gone:1 is not here, and cannot be pulled: no such tag",
		}
		if !slices.Equal(got, want) {
			t.Errorf("missing %q\nwant %q", got, want)
		}
		stop()
	})
}
