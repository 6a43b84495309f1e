// The slots of PJRT_Api at API 0.114, in order.
#ifndef PJ_PJRT_SLOTS_H_
#define PJ_PJRT_SLOTS_H_

// REQUIRED: a plugin without it is refused (VOID: the two of them that return nothing); OPTIONAL:
// called where present; UNUSED: only their place is known.
#define PJRT_API_SLOTS(VOID, REQUIRED, OPTIONAL, UNUSED)                                                          \
  VOID(Error_Destroy) VOID(Error_Message) REQUIRED(Error_GetCode)                                                 \
  REQUIRED(Plugin_Initialize) OPTIONAL(Plugin_Attributes)                                                         \
  REQUIRED(Event_Destroy) REQUIRED(Event_IsReady) UNUSED(Event_Error) REQUIRED(Event_Await)                       \
  REQUIRED(Event_OnReady)                                                                                         \
  REQUIRED(Client_Create) REQUIRED(Client_Destroy) REQUIRED(Client_PlatformName) UNUSED(Client_ProcessIndex)      \
  REQUIRED(Client_PlatformVersion) UNUSED(Client_Devices) REQUIRED(Client_AddressableDevices)                     \
  UNUSED(Client_LookupDevice) UNUSED(Client_LookupAddressableDevice) UNUSED(Client_AddressableMemories)           \
  REQUIRED(Client_Compile) UNUSED(Client_DefaultDeviceAssignment) REQUIRED(Client_BufferFromHostBuffer)           \
  REQUIRED(DeviceDescription_Id) UNUSED(DeviceDescription_ProcessIndex) UNUSED(DeviceDescription_Attributes)      \
  REQUIRED(DeviceDescription_Kind) UNUSED(DeviceDescription_DebugString) UNUSED(DeviceDescription_ToString)       \
  REQUIRED(Device_GetDescription) UNUSED(Device_IsAddressable) UNUSED(Device_LocalHardwareId)                     \
  UNUSED(Device_AddressableMemories) UNUSED(Device_DefaultMemory) OPTIONAL(Device_MemoryStats)                    \
  UNUSED(Memory_Id) UNUSED(Memory_Kind) UNUSED(Memory_DebugString) UNUSED(Memory_ToString)                        \
  UNUSED(Memory_AddressableByDevices)                                                                             \
  REQUIRED(Executable_Destroy) UNUSED(Executable_Name) UNUSED(Executable_NumReplicas)                             \
  UNUSED(Executable_NumPartitions) REQUIRED(Executable_NumOutputs) UNUSED(Executable_SizeOfGeneratedCodeInBytes)  \
  OPTIONAL(Executable_GetCostAnalysis) UNUSED(Executable_OutputMemoryKinds) UNUSED(Executable_OptimizedProgram)   \
  OPTIONAL(Executable_Serialize)                                                                                  \
  REQUIRED(LoadedExecutable_Destroy) REQUIRED(LoadedExecutable_GetExecutable)                                     \
  REQUIRED(LoadedExecutable_AddressableDevices) UNUSED(LoadedExecutable_Delete)                                   \
  UNUSED(LoadedExecutable_IsDeleted) REQUIRED(LoadedExecutable_Execute) OPTIONAL(Executable_DeserializeAndLoad)   \
  UNUSED(LoadedExecutable_Fingerprint)                                                                            \
  REQUIRED(Buffer_Destroy) REQUIRED(Buffer_ElementType) REQUIRED(Buffer_Dimensions)                               \
  UNUSED(Buffer_UnpaddedDimensions) UNUSED(Buffer_DynamicDimensionIndices) UNUSED(Buffer_GetMemoryLayout)         \
  UNUSED(Buffer_OnDeviceSizeInBytes) UNUSED(Buffer_Device) UNUSED(Buffer_Memory) UNUSED(Buffer_Delete)            \
  REQUIRED(Buffer_IsDeleted) OPTIONAL(Buffer_CopyToDevice) REQUIRED(Buffer_ToHostBuffer) UNUSED(Buffer_IsOnCpu)   \
  REQUIRED(Buffer_ReadyEvent) OPTIONAL(Buffer_UnsafePointer) UNUSED(Buffer_IncreaseExternalReferenceCount)        \
  UNUSED(Buffer_DecreaseExternalReferenceCount) OPTIONAL(Buffer_OpaqueDeviceMemoryDataPointer)                    \
  UNUSED(CopyToDeviceStream_Destroy) UNUSED(CopyToDeviceStream_AddChunk) UNUSED(CopyToDeviceStream_TotalBytes)    \
  UNUSED(CopyToDeviceStream_GranuleSize) UNUSED(CopyToDeviceStream_CurrentBytes)                                  \
  OPTIONAL(TopologyDescription_Create) OPTIONAL(TopologyDescription_Destroy)                                      \
  UNUSED(TopologyDescription_PlatformName) UNUSED(TopologyDescription_PlatformVersion)                            \
  OPTIONAL(TopologyDescription_GetDeviceDescriptions) UNUSED(TopologyDescription_Serialize)                       \
  UNUSED(TopologyDescription_Attributes)                                                                          \
  OPTIONAL(Compile)                                                                                               \
  OPTIONAL(Executable_OutputElementTypes) OPTIONAL(Executable_OutputDimensions)                                   \
  UNUSED(Buffer_CopyToMemory) UNUSED(Client_CreateViewOfDeviceBuffer) UNUSED(Executable_Fingerprint)              \
  UNUSED(Client_TopologyDescription) OPTIONAL(Executable_GetCompiledMemoryStats) UNUSED(Memory_Kind_Id)           \
  UNUSED(ExecuteContext_Create) UNUSED(ExecuteContext_Destroy) UNUSED(Buffer_CopyRawToHost)                       \
  UNUSED(AsyncHostToDeviceTransferManager_Destroy) UNUSED(AsyncHostToDeviceTransferManager_TransferData)          \
  UNUSED(Client_CreateBuffersForAsyncHostToDevice) UNUSED(AsyncHostToDeviceTransferManager_RetrieveBuffer)        \
  UNUSED(AsyncHostToDeviceTransferManager_Device) UNUSED(AsyncHostToDeviceTransferManager_BufferCount)            \
  UNUSED(AsyncHostToDeviceTransferManager_BufferSize) UNUSED(AsyncHostToDeviceTransferManager_SetBufferError)     \
  UNUSED(AsyncHostToDeviceTransferManager_AddMetadata) UNUSED(Client_DmaMap) UNUSED(Client_DmaUnmap)              \
  UNUSED(Client_CreateUninitializedBuffer) UNUSED(Client_UpdateGlobalProcessInfo)                                 \
  UNUSED(TopologyDescription_Deserialize) UNUSED(Client_CreateAliasBuffer) UNUSED(Client_FulfillAliasBuffer)      \
  UNUSED(LoadedExecutable_GetDeviceAssignment) UNUSED(Client_CreateErrorBuffer)                                   \
  UNUSED(AsyncHostToDeviceTransferManager_TransferLiteral) UNUSED(Buffer_CopyRawToHostFuture)                     \
  UNUSED(Device_PoisonExecution) UNUSED(Device_CreateAsyncTrackingEvent) UNUSED(AsyncTrackingEvent_Destroy)       \
  UNUSED(Executable_GetCompileOptions) UNUSED(Buffer_DonateWithControlDependency) UNUSED(Event_Create)            \
  UNUSED(Event_Set) UNUSED(Device_GetAttributes)                                                                  \
  UNUSED(Client_Load) UNUSED(LoadedExecutable_AddressableDeviceLogicalIds) UNUSED(Buffer_Bitcast)                 \
  UNUSED(Error_ForEachPayload) UNUSED(TopologyDescription_Fingerprint) UNUSED(Executable_ParameterMemoryKinds)    \
  UNUSED(Device_ClearMemoryStats) UNUSED(TopologyDescription_MakeCanonicalShapeForMemorySpace)                    \
  UNUSED(TopologyDescription_GetMemorySpaceKindIds)

#endif
