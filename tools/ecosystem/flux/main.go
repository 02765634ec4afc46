// Flux applies manifests as Flux's kustomize-controller does, with its own package: a server-side
// apply in stages, a wait for kstatus, a search for drift, and a deletion that waits.
//
//	flux -kubeconfig FILE -manifests FILE apply|diff|delete
//
// It prints a line for each object: what was done, its kind, namespace and name.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	ssautil "github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

func main() {
	config := flag.String("kubeconfig", "", "a `file` for the API server")
	manifests := flag.String("manifests", "", "a `file` of objects")
	timeout := flag.Duration("timeout", 2*time.Minute, "how long the objects may take to become ready, or to go")
	flag.Parse()
	log.SetFlags(0)
	if flag.NArg() != 1 {
		log.Fatal("want apply, diff or delete")
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	if err := run(ctx, *config, *manifests, flag.Arg(0), *timeout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, config, manifests, verb string, timeout time.Duration) error {
	settings, err := clientcmd.BuildConfigFromFlags("", config)
	if err != nil {
		return err
	}
	transport, err := rest.HTTPClientFor(settings)
	if err != nil {
		return err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(settings, transport)
	if err != nil {
		return err
	}
	c, err := client.New(settings, client.Options{Mapper: mapper})
	if err != nil {
		return err
	}
	manager := ssa.NewResourceManager(c, polling.NewStatusPoller(c, mapper, polling.Options{}), ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"})
	f, err := os.Open(manifests)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	objects, err := ssautil.ReadObjects(f)
	if err != nil {
		return err
	}
	manager.SetOwnerLabels(objects, "ecosystem", "default")
	switch verb {
	case "apply":
		changes, err := manager.ApplyAllStaged(ctx, objects, ssa.DefaultApplyOptions())
		if err != nil {
			return err
		}
		for _, e := range changes.Entries {
			fmt.Println(e.Action, e.Subject)
		}
		return manager.WaitForSetWithContext(ctx, changes.ToObjMetadataSet(), ssa.WaitOptions{Interval: time.Second, Timeout: timeout})
	case "diff":
		for _, o := range objects {
			e, _, _, err := manager.Diff(ctx, o, ssa.DefaultDiffOptions())
			if err != nil {
				return err
			}
			fmt.Println(e.Action, e.Subject)
		}
		return nil
	case "delete":
		changes, err := manager.DeleteAll(ctx, objects, ssa.DefaultDeleteOptions())
		if err != nil {
			return err
		}
		for _, e := range changes.Entries {
			fmt.Println(e.Action, e.Subject)
		}
		return manager.WaitForTermination(objects, ssa.WaitOptions{Interval: time.Second, Timeout: timeout})
	}
	return fmt.Errorf("%q: want apply, diff or delete", verb)
}
