package main

import (
	"context"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	scheduling "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	vcclientset "volcano.sh/apis/pkg/client/clientset/versioned"
	vcinformer "volcano.sh/apis/pkg/client/informers/externalversions"

	"volcano.sh/volcano/pkg/controllers/framework"
	_ "volcano.sh/volcano/pkg/controllers/garbagecollector"
	_ "volcano.sh/volcano/pkg/controllers/job"
)

func must(err error) {
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS, config.Burst = 100, 200
	client, volcano := kubernetes.NewForConfigOrDie(config), vcclientset.NewForConfigOrDie(config)
	options := &framework.ControllerOption{
		KubeClient: client, VolcanoClient: volcano, Config: config,
		SharedInformerFactory:   informers.NewSharedInformerFactory(client, 0),
		VCSharedInformerFactory: vcinformer.NewSharedInformerFactory(volcano, 0),
		SchedulerNames:          []string{"volcano"}, WorkerNum: 2, MaxRequeueNum: 15,
		WorkerThreadsForPG: 1, WorkerThreadsForQueue: 1, WorkerThreadsForGC: 1,
	}
	stop := make(chan struct{})
	framework.ForeachController(func(controller framework.Controller) {
		must(controller.Initialize(options))
		go controller.Run(stop)
	})
	// Stands for the scheduler, which admits groups: pods are created once their group is Inqueue.
	for ctx := context.Background(); ; time.Sleep(500 * time.Millisecond) {
		groups, err := volcano.SchedulingV1beta1().PodGroups("").List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, group := range groups.Items {
			if group.Status.Phase == "" || group.Status.Phase == scheduling.PodGroupPending {
				if group.Annotations["test/hold"] == "" {
					group.Status.Phase = scheduling.PodGroupInqueue
					_, _ = volcano.SchedulingV1beta1().PodGroups(group.Namespace).Update(ctx, &group, metav1.UpdateOptions{})
				}
			}
		}
	}
}
