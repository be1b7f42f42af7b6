"""Fields of a pod template by type, with the keys by which a strategic merge joins lists.

Written by `python -m tools.catalogue.pod_fields`; Source: Kubernetes 1.37.0 OpenAPI definitions.
A type: NAME FIELD:TYPE …, and what is indented below; `[]` is a list, `[KEY]` a list that is merged by a key, `{}` a
map. Scalars: s text, i integer, n number, b boolean, q quantity or number, t time, o any object.
"""

TEXT = """\
PodTemplateSpec metadata:ObjectMeta spec:PodSpec
ObjectMeta annotations:{}s labels:{}s
PodSpec activeDeadlineSeconds:i affinity:Affinity automountServiceAccountToken:b containers:[name]Container
  dnsConfig:PodDNSConfig dnsPolicy:s enableServiceLinks:b ephemeralContainers:[name]EphemeralContainer
  evictionResponders:[name]EvictionResponder hostAliases:[ip]HostAlias hostIPC:b hostNetwork:b hostPID:b hostUsers:b
  hostname:s hostnameOverride:s imagePullSecrets:[name]LocalObjectReference initContainers:[name]Container nodeName:s
  nodeSelector:{}s os:PodOS overhead:{}q preemptionPolicy:s priority:i priorityClassName:s
  readinessGates:[]PodReadinessGate resourceClaims:[name]PodResourceClaim resources:ResourceRequirements
  restartPolicy:s runtimeClassName:s schedulerName:s schedulingGates:[name]PodSchedulingGate
  schedulingGroup:PodSchedulingGroup securityContext:PodSecurityContext serviceAccount:s serviceAccountName:s
  setHostnameAsFQDN:b shareProcessNamespace:b subdomain:s terminationGracePeriodSeconds:i tolerations:[]Toleration
  topologySpreadConstraints:[topologyKey]TopologySpreadConstraint volumes:[name]Volume
Affinity nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
Container args:[]s command:[]s env:[name]EnvVar envFrom:[]EnvFromSource image:s imagePullPolicy:s lifecycle:Lifecycle
  livenessProbe:Probe name:s ports:[containerPort]ContainerPort readinessProbe:Probe
  resizePolicy:[]ContainerResizePolicy resources:ResourceRequirements restartPolicy:s
  restartPolicyRules:[]ContainerRestartRule securityContext:SecurityContext startupProbe:Probe stdin:b stdinOnce:b
  terminationMessagePath:s terminationMessagePolicy:s tty:b volumeDevices:[devicePath]VolumeDevice
  volumeMounts:[mountPath]VolumeMount workingDir:s
PodDNSConfig nameservers:[]s options:[]PodDNSConfigOption searches:[]s
EphemeralContainer args:[]s command:[]s env:[name]EnvVar envFrom:[]EnvFromSource image:s imagePullPolicy:s
  lifecycle:Lifecycle livenessProbe:Probe name:s ports:[containerPort]ContainerPort readinessProbe:Probe
  resizePolicy:[]ContainerResizePolicy resources:ResourceRequirements restartPolicy:s
  restartPolicyRules:[]ContainerRestartRule securityContext:SecurityContext startupProbe:Probe stdin:b stdinOnce:b
  targetContainerName:s terminationMessagePath:s terminationMessagePolicy:s tty:b
  volumeDevices:[devicePath]VolumeDevice volumeMounts:[mountPath]VolumeMount workingDir:s
EvictionResponder name:s priority:i
HostAlias hostnames:[]s ip:s
LocalObjectReference name:s
PodOS name:s
PodReadinessGate conditionType:s
PodResourceClaim name:s resourceClaimName:s resourceClaimTemplateName:s
ResourceRequirements claims:[]ResourceClaim limits:{}q requests:{}q
PodSchedulingGate name:s
PodSchedulingGroup podGroupName:s
PodSecurityContext appArmorProfile:AppArmorProfile fsGroup:i fsGroupChangePolicy:s runAsGroup:i runAsNonRoot:b
  runAsUser:i seLinuxChangePolicy:s seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile supplementalGroups:[]i
  supplementalGroupsPolicy:s sysctls:[]Sysctl windowsOptions:WindowsSecurityContextOptions
Toleration effect:s key:s operator:s tolerationSeconds:i value:s
TopologySpreadConstraint labelSelector:LabelSelector matchLabelKeys:[]s maxSkew:i minDomains:i nodeAffinityPolicy:s
  nodeTaintsPolicy:s topologyKey:s whenUnsatisfiable:s
Volume awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource
  azureFile:AzureFileVolumeSource cephfs:CephFSVolumeSource cinder:CinderVolumeSource configMap:ConfigMapVolumeSource
  csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource emptyDir:EmptyDirVolumeSource
  ephemeral:EphemeralVolumeSource fc:FCVolumeSource flexVolume:FlexVolumeSource flocker:FlockerVolumeSource
  gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource glusterfs:GlusterfsVolumeSource
  hostPath:HostPathVolumeSource image:ImageVolumeSource iscsi:ISCSIVolumeSource name:s nfs:NFSVolumeSource
  persistentVolumeClaim:PersistentVolumeClaimVolumeSource photonPersistentDisk:PhotonPersistentDiskVolumeSource
  portworxVolume:PortworxVolumeSource projected:ProjectedVolumeSource quobyte:QuobyteVolumeSource rbd:RBDVolumeSource
  scaleIO:ScaleIOVolumeSource secret:SecretVolumeSource storageos:StorageOSVolumeSource
  vsphereVolume:VsphereVirtualDiskVolumeSource
NodeAffinity preferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm
  requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
PodAffinity preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm
PodAntiAffinity preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm
EnvVar name:s value:s valueFrom:EnvVarSource
EnvFromSource configMapRef:ConfigMapEnvSource prefix:s secretRef:SecretEnvSource
Lifecycle postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:s
Probe exec:ExecAction failureThreshold:i grpc:GRPCAction httpGet:HTTPGetAction initialDelaySeconds:i periodSeconds:i
  successThreshold:i tcpSocket:TCPSocketAction terminationGracePeriodSeconds:i timeoutSeconds:i
ContainerPort containerPort:i hostIP:s hostPort:i name:s protocol:s
ContainerResizePolicy resourceName:s restartPolicy:s
ContainerRestartRule action:s exitCodes:ContainerRestartRuleOnExitCodes
SecurityContext allowPrivilegeEscalation:b appArmorProfile:AppArmorProfile capabilities:Capabilities privileged:b
  procMount:s readOnlyRootFilesystem:b runAsGroup:i runAsNonRoot:b runAsUser:i seLinuxOptions:SELinuxOptions
  seccompProfile:SeccompProfile windowsOptions:WindowsSecurityContextOptions
VolumeDevice devicePath:s name:s
VolumeMount bindMountOptions:[]s mountPath:s mountPropagation:s name:s readOnly:b recursiveReadOnly:s subPath:s
  subPathExpr:s
PodDNSConfigOption name:s value:s
ResourceClaim name:s request:s
AppArmorProfile localhostProfile:s type:s
SELinuxOptions level:s role:s type:s user:s
SeccompProfile localhostProfile:s type:s
Sysctl name:s value:s
WindowsSecurityContextOptions gmsaCredentialSpec:s gmsaCredentialSpecName:s hostProcess:b runAsUserName:s
LabelSelector matchExpressions:[]LabelSelectorRequirement matchLabels:{}s
AWSElasticBlockStoreVolumeSource fsType:s partition:i readOnly:b volumeID:s
AzureDiskVolumeSource cachingMode:s diskName:s diskURI:s fsType:s kind:s readOnly:b
AzureFileVolumeSource readOnly:b secretName:s shareName:s
CephFSVolumeSource monitors:[]s path:s readOnly:b secretFile:s secretRef:LocalObjectReference user:s
CinderVolumeSource fsType:s readOnly:b secretRef:LocalObjectReference volumeID:s
ConfigMapVolumeSource defaultMode:i defaultUser:i items:[]KeyToPath name:s optional:b
CSIVolumeSource driver:s fsType:s nodePublishSecretRef:LocalObjectReference readOnly:b volumeAttributes:{}s
DownwardAPIVolumeSource defaultMode:i defaultUser:i items:[]DownwardAPIVolumeFile
EmptyDirVolumeSource medium:s mode:i sizeLimit:q
EphemeralVolumeSource volumeClaimTemplate:PersistentVolumeClaimTemplate
FCVolumeSource fsType:s lun:i readOnly:b targetWWNs:[]s wwids:[]s
FlexVolumeSource driver:s fsType:s options:{}s readOnly:b secretRef:LocalObjectReference
FlockerVolumeSource datasetName:s datasetUUID:s
GCEPersistentDiskVolumeSource fsType:s partition:i pdName:s readOnly:b
GitRepoVolumeSource directory:s repository:s revision:s
GlusterfsVolumeSource endpoints:s path:s readOnly:b
HostPathVolumeSource path:s type:s
ImageVolumeSource pullPolicy:s reference:s
ISCSIVolumeSource chapAuthDiscovery:b chapAuthSession:b fsType:s initiatorName:s iqn:s iscsiInterface:s lun:i
  portals:[]s readOnly:b secretRef:LocalObjectReference targetPortal:s
NFSVolumeSource path:s readOnly:b server:s
PersistentVolumeClaimVolumeSource claimName:s readOnly:b
PhotonPersistentDiskVolumeSource fsType:s pdID:s
PortworxVolumeSource fsType:s readOnly:b volumeID:s
ProjectedVolumeSource defaultMode:i defaultUser:i sources:[]VolumeProjection
QuobyteVolumeSource group:s readOnly:b registry:s tenant:s user:s volume:s
RBDVolumeSource fsType:s image:s keyring:s monitors:[]s pool:s readOnly:b secretRef:LocalObjectReference user:s
ScaleIOVolumeSource fsType:s gateway:s protectionDomain:s readOnly:b secretRef:LocalObjectReference sslEnabled:b
  storageMode:s storagePool:s system:s volumeName:s
SecretVolumeSource defaultMode:i defaultUser:i items:[]KeyToPath optional:b secretName:s
StorageOSVolumeSource fsType:s readOnly:b secretRef:LocalObjectReference volumeName:s volumeNamespace:s
VsphereVirtualDiskVolumeSource fsType:s storagePolicyID:s storagePolicyName:s volumePath:s
PreferredSchedulingTerm preference:NodeSelectorTerm weight:i
NodeSelector nodeSelectorTerms:[]NodeSelectorTerm
WeightedPodAffinityTerm podAffinityTerm:PodAffinityTerm weight:i
PodAffinityTerm labelSelector:LabelSelector matchLabelKeys:[]s mismatchLabelKeys:[]s namespaceSelector:LabelSelector
  namespaces:[]s topologyKey:s
EnvVarSource configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:FileKeySelector
  resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
ConfigMapEnvSource name:s optional:b
SecretEnvSource name:s optional:b
LifecycleHandler exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction
ExecAction command:[]s
GRPCAction mode:s port:i service:s
HTTPGetAction host:s httpHeaders:[]HTTPHeader path:s port:q protocol:s scheme:s
TCPSocketAction host:s port:q
ContainerRestartRuleOnExitCodes operator:s values:[]i
Capabilities add:[]s drop:[]s
LabelSelectorRequirement key:s operator:s values:[]s
KeyToPath key:s mode:i path:s user:i
DownwardAPIVolumeFile fieldRef:ObjectFieldSelector mode:i path:s resourceFieldRef:ResourceFieldSelector user:i
PersistentVolumeClaimTemplate metadata:ObjectMeta spec:PersistentVolumeClaimSpec
VolumeProjection clusterTrustBundle:ClusterTrustBundleProjection configMap:ConfigMapProjection
  downwardAPI:DownwardAPIProjection podCertificate:PodCertificateProjection secret:SecretProjection
  serviceAccountToken:ServiceAccountTokenProjection
NodeSelectorTerm matchExpressions:[]NodeSelectorRequirement matchFields:[]NodeSelectorRequirement
ConfigMapKeySelector key:s name:s optional:b
ObjectFieldSelector apiVersion:s fieldPath:s
FileKeySelector key:s optional:b path:s volumeName:s
ResourceFieldSelector containerName:s divisor:q resource:s
SecretKeySelector key:s name:s optional:b
SleepAction seconds:i
HTTPHeader name:s value:s
PersistentVolumeClaimSpec accessModes:[]s dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
  resources:VolumeResourceRequirements selector:LabelSelector storageClassName:s volumeAttributesClassName:s
  volumeMode:s volumeName:s
ClusterTrustBundleProjection labelSelector:LabelSelector name:s optional:b path:s signerName:s user:i
ConfigMapProjection items:[]KeyToPath name:s optional:b
DownwardAPIProjection items:[]DownwardAPIVolumeFile
PodCertificateProjection certificateChainPath:s credentialBundlePath:s keyPath:s keyType:s maxExpirationSeconds:i
  signerName:s user:i userAnnotations:{}s
SecretProjection items:[]KeyToPath name:s optional:b
ServiceAccountTokenProjection audience:s expirationSeconds:i path:s user:i
NodeSelectorRequirement key:s operator:s values:[]s
TypedLocalObjectReference apiGroup:s kind:s name:s
TypedObjectReference apiGroup:s kind:s name:s namespace:s
VolumeResourceRequirements limits:{}q requests:{}q
"""
