package nodeagent

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/critest"
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
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
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
		if _, err := n.LoadImages(ctx, strings.NewReader(""), ""); err != nil {
			t.Error(err)
		}
		if time.Sleep(2 * time.Second); !begun() {
			t.Error("the pod has not begun 2 s after its image is there")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
